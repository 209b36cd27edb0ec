"""Whether a failed attempt is tried again, and when."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rune.core.definition.model import Retry
from rune.core.execution.outcome import Error
from rune.core.execution.step import MAX_BACKOFF_MS, is_retried, retry_due
from tests.unit.core.plans import NOW, Life, node, plan

STEADY = Retry(max_attempts=5, initial_delay=1, backoff=2, max_delay=5, jitter=False)


@pytest.mark.parametrize(
    ("attempt", "on", "code", "again"),
    [
        (1, (), "E", True),
        (4, (), "E", True),
        (5, (), "E", False),
        (1, ("E", "F"), "E", True),
        (1, ("F",), "E", False),
    ],
)
def test_who_is_tried_again(attempt: int, on: tuple[str, ...], code: str, again: bool) -> None:
    assert is_retried(Retry(max_attempts=5, on=on), attempt, Error(code, "")) is again


def test_without_a_policy_nothing_is_tried_again() -> None:
    assert not is_retried(Retry(), 1, Error("E", ""))


@pytest.mark.parametrize(("attempt", "seconds"), [(1, 1), (2, 2), (3, 4), (4, 5), (900, 5)])
def test_the_delay_doubles_up_to_its_bound(attempt: int, seconds: int) -> None:
    assert retry_due(STEADY, attempt, NOW, "x@/") == NOW + seconds * 1000


@given(st.integers(1, 1000), st.floats(0, 1e6), st.floats(1, 100), st.floats(0, 1e6), st.booleans())
def test_no_policy_that_a_document_may_hold_overflows(
    attempt: int, first: float, backoff: float, longest: float, jitter: bool
) -> None:
    retry = Retry(max_attempts=1000, initial_delay=first, backoff=backoff, max_delay=longest, jitter=jitter)

    due = retry_due(retry, attempt, NOW, "x@/")

    assert NOW <= due <= NOW + longest * 1000 + 1


def test_no_delay_stays_none_however_often() -> None:
    retry = Retry(max_attempts=1000, initial_delay=0, backoff=100, jitter=False)

    assert retry_due(retry, 999, NOW, "x@/") == NOW


@given(st.text(max_size=20), st.integers(1, 5))
def test_jitter_is_a_hash_between_half_and_the_whole(token: str, attempt: int) -> None:
    retry = Retry(max_attempts=9, initial_delay=1, backoff=1)

    due = retry_due(retry, attempt, NOW, token)

    assert due == retry_due(retry, attempt, NOW, token)
    assert NOW + 500 <= due <= NOW + 1000


def test_jitter_is_the_same_in_every_version() -> None:
    assert retry_due(Retry(max_attempts=3), 2, NOW, "charge@/users:5") == NOW + 1468


def test_jitter_spreads_tokens() -> None:
    retry = Retry(max_attempts=9, initial_delay=10)

    assert len({retry_due(retry, 1, NOW, f"x@/s:{item}") for item in range(100)}) > 90


@pytest.mark.parametrize(
    ("asked", "due"),
    [
        (NOW + 60_000, NOW + 60_000),
        (NOW - 60_000, NOW + 1000),
        (10**30, NOW + 1000 + MAX_BACKOFF_MS),
        ("soon", NOW + 1000),
        (None, NOW + 1000),
        (True, NOW + 1000),
        (1.5e15, NOW + 1000),
    ],
)
def test_who_asks_for_a_later_time_gets_it(asked: object, due: int) -> None:
    life = Life(plan("start -> x", x=node(retry={"max_attempts": 2, "initial_delay": 1, "jitter": False})))

    life.fail("x", retry_at=asked)

    assert life.due("retry", "x") == due - NOW


def test_each_attempt_waits_and_the_last_failure_counts() -> None:
    life = Life(plan("start -> x", x=node(retry={"max_attempts": 3, "initial_delay": 1, "jitter": False})))

    life.fail("x", code="ONE")
    assert (life.queue, life.due("retry", "x")) == (set(), 1000)
    life.check_fold()
    life.fire("retry", "x")
    assert life.token("x").attempt == 2
    life.fail("x", code="TWO")
    assert life.due("retry", "x") == 3000
    life.fire("retry", "x")
    life.check_fold()
    life.fail("x", code="THREE")

    assert life.finish is not None
    assert life.finish.error is not None
    assert life.finish.error.code == "THREE"
    assert life.result("x").attempt == 3


def test_a_retried_success_is_a_success() -> None:
    life = Life(plan("start -> x -> y", x=node(retry={"max_attempts": 2})))

    life.fail("x")
    life.fire("retry", "x")
    life.ok("x")

    assert life.queue == {"y@/"}
    assert life.timers == {}


def test_what_may_have_been_done_is_never_tried_again() -> None:
    policy = Retry(max_attempts=5)

    assert is_retried(policy, 1, Error("BROKEN", "no"))
    assert not is_retried(policy, 1, Error("UNKNOWN_OUTCOME", "nobody knows"))
