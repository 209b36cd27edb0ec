"""Conformance cases on clusters: all of them with nodes run in place and through the queue, and a part of them, or with
RUNE_WHOLE=1 all, on a Redis Cluster, over quorum queues and with inline messages."""

from __future__ import annotations

import asyncio

from tests.acceptance.conformance.case import load, load_steps
from tests.support.cluster_conformance import run_cases, walk_cases
from tests.support.clusters import Cluster, clusters
from tests.support.whole import WHOLE

STRIDE = 1 if WHOLE else 12
all_cases = clusters("redis-in_place", "redis-travelling", "rabbitmq-in_place", "rabbitmq-travelling")
some_cases = clusters("redis-cluster", "rabbitmq-quorum", "rabbitmq-inline")


@all_cases
def test_cases_end_as_expected(cluster: Cluster) -> None:
    assert asyncio.run(run_cases(cluster, load())) == {}


@all_cases
def test_cases_with_steps_proceed_as_expected(cluster: Cluster) -> None:
    assert asyncio.run(walk_cases(cluster, load_steps())) == {}


@some_cases
def test_sample_of_cases_ends_as_expected(cluster: Cluster) -> None:
    assert asyncio.run(run_cases(cluster, load()[::STRIDE])) == {}


@some_cases
def test_sample_of_cases_with_steps_proceeds_as_expected(cluster: Cluster) -> None:
    assert asyncio.run(walk_cases(cluster, load_steps()[::STRIDE])) == {}
