"""Conformance cases on clusters.

Each case runs on Redis and on RabbitMQ, where every second case runs its nodes in place and the others send each token
through the queue. A part of them also runs on a Redis Cluster, over quorum queues and with inline messages. With
RUNE_WHOLE=1 every case runs on every cluster.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from tests.acceptance.conformance.case import Case, load, load_steps
from tests.support.cluster_conformance import run_cases, walk_cases
from tests.support.clusters import Cluster, clusters
from tests.support.whole import WHOLE

STRIDE = 1 if WHOLE else 12
WAYS = ("redis-in_place", "redis-travelling", "rabbitmq-travelling", "rabbitmq-in_place")
all_cases = clusters(*WAYS)
some_cases = clusters("redis-cluster", "rabbitmq-quorum", "rabbitmq-inline")


def share(cases: Sequence[Case], way: str) -> Sequence[Case]:
    """Return the cases that run on a cluster: half of them on each way of passing tokens."""
    return cases if WHOLE else cases[WAYS.index(way) % 2 :: 2]


@all_cases
def test_cases_end_as_expected(cluster: Cluster, request: pytest.FixtureRequest) -> None:
    assert asyncio.run(run_cases(cluster, share(load(), request.node.callspec.params["cluster"]))) == {}


@all_cases
def test_cases_with_steps_proceed_as_expected(cluster: Cluster, request: pytest.FixtureRequest) -> None:
    assert (
        asyncio.run(walk_cases(cluster, share(load_steps(), request.node.callspec.params["cluster"]))) == {}
    )


def test_each_case_runs_on_both_kinds_of_clusters_and_each_way_has_cases() -> None:
    for cases in (load(), load_steps()):
        shares = {way: {case.name for case in share(cases, way)} for way in WAYS}
        assert all(shares.values())
        for kind in ("redis", "rabbitmq"):
            ran = set[str]().union(*(names for way, names in shares.items() if way.startswith(kind)))
            assert ran == {case.name for case in cases}


@some_cases
def test_sample_of_cases_ends_as_expected(cluster: Cluster) -> None:
    assert asyncio.run(run_cases(cluster, load()[::STRIDE])) == {}


@some_cases
def test_sample_of_cases_with_steps_proceeds_as_expected(cluster: Cluster) -> None:
    assert asyncio.run(walk_cases(cluster, load_steps()[::STRIDE])) == {}
