"""Every conformance case over two workers and RabbitMQ, with nodes run in place and each on its own."""

from __future__ import annotations

import asyncio

from tests.cluster.cases import run_cases, walk_cases
from tests.cluster.standing import Standing
from tests.conformance.case import load, load_steps


def test_every_case_ends_as_it_must(stood: Standing) -> None:
    assert asyncio.run(run_cases(stood, load())) == {}


def test_every_case_with_steps_goes_as_it_must(stood: Standing) -> None:
    assert asyncio.run(walk_cases(stood, load_steps())) == {}
