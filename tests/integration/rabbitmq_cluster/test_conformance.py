"""Every conformance case over two workers and RabbitMQ, with nodes run in place and each on its own; some of them
over replicated queues and with messages in full, or all of them with RUNE_WHOLE=1."""

from __future__ import annotations

import asyncio

import pytest

from tests.acceptance.conformance.case import load, load_steps
from tests.integration.cluster.cases import run_cases, walk_cases
from tests.integration.cluster.standing import Standing
from tests.support.whole import WHOLE

SOME = 1 if WHOLE else 12  # every twelfth


def test_every_case_ends_as_it_must(stood: Standing) -> None:
    assert asyncio.run(run_cases(stood, load())) == {}


def test_every_case_with_steps_goes_as_it_must(stood: Standing) -> None:
    assert asyncio.run(walk_cases(stood, load_steps())) == {}


@pytest.fixture(params=["quorum", "inline"])
def otherwise(request: pytest.FixtureRequest) -> Standing:
    """A fleet that is set up in another way."""
    made: Standing = request.getfixturevalue(request.param)
    return made


def test_cases_end_the_same_however_messages_travel(otherwise: Standing) -> None:
    assert asyncio.run(run_cases(otherwise, load()[::SOME])) == {}


def test_cases_with_steps_go_the_same_however_messages_travel(otherwise: Standing) -> None:
    assert asyncio.run(walk_cases(otherwise, load_steps()[::SOME])) == {}
