"""Every conformance case over two workers, with nodes run in place and each on its own."""

from __future__ import annotations

import asyncio

from tests.acceptance.conformance.case import load, load_steps
from tests.integration.cluster.cases import run_cases, walk_cases
from tests.integration.cluster.standing import Standing


def test_every_case_ends_as_it_must(stood: Standing) -> None:
    assert asyncio.run(run_cases(stood, load())) == {}


def test_every_case_with_steps_goes_as_it_must(stood: Standing) -> None:
    assert asyncio.run(walk_cases(stood, load_steps())) == {}
