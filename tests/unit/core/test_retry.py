"""Retries: whether a failed attempt is retried, and when."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rune.core.definition.model import Retry
from rune.core.execution.outcome import Error
from rune.core.execution.retry import MAX_BACKOFF_MS, is_retried, retry_due
from rune.core.node_type import NodeType
from tests.support.plans import NOW, ExecutionDriver, node, plan

STEADY = Retry(max_attempts=5, initial_delay=1, backoff=2, max_delay=5, jitter=False)


@pytest.mark.parametrize(
    ("attempt", "on", "code", "retried"),
    [
        (1, (), "E", True),
        (4, (), "E", True),
        (5, (), "E", False),
        (1, ("E", "F"), "E", True),
        (1, ("F",), "E", False),
    ],
)
def test_is_retried_by_attempt_and_code(attempt: int, on: tuple[str, ...], code: str, retried: bool) -> None:
    assert is_retried(Retry(max_attempts=5, on=on), attempt, Error(code, "")) is retried


@pytest.mark.parametrize(
    ("code", "error_class"),
    [
        ("STATUS", "by status"),
        ("BLOCKED", "permanent"),
        ("EXPRESSION_ERROR", "permanent"),
        ("TIMEOUT", "transient"),
    ],
)
def test_error_class_of_node_type_depends_on_its_declared_codes(code: str, error_class: str) -> None:
    kind = NodeType(name="call", permanent=frozenset({"BLOCKED"}), by_status=frozenset({"STATUS"}))
    assert kind.error_class(code) == error_class


@pytest.mark.parametrize(
    ("error", "on", "retried"),
    [
        (Error("BAD_PARAMETER", ""), (), False),
        (Error("BAD_PARAMETER", ""), ("BAD_PARAMETER",), True),
        (Error("DECLARED", ""), (), False),
        (Error("DECLARED", "", permanent=False), (), True),
        (Error("E", "", permanent=True), (), False),
        (Error("E", "", permanent=True), ("E",), True),
        (Error("UNKNOWN_OUTCOME", ""), ("UNKNOWN_OUTCOME",), False),
    ],
)
def test_permanent_error_is_retried_only_if_on_names_it(
    error: Error, on: tuple[str, ...], retried: bool
) -> None:
    assert is_retried(Retry(max_attempts=5, on=on), 1, error, frozenset({"DECLARED"})) is retried


def test_default_policy_does_not_retry() -> None:
    assert not is_retried(Retry(), 1, Error("E", ""))


@pytest.mark.parametrize(("attempt", "seconds"), [(1, 1), (2, 2), (3, 4), (4, 5), (900, 5)])
def test_delay_doubles_up_to_max_delay(attempt: int, seconds: int) -> None:
    assert retry_due(STEADY, attempt, NOW, "x@/") == NOW + seconds * 1000


@given(st.integers(1, 1000), st.floats(0, 1e6), st.floats(1, 100), st.floats(0, 1e6), st.booleans())
def test_delay_never_exceeds_max_delay(
    attempt: int, initial_delay: float, backoff: float, max_delay: float, jitter: bool
) -> None:
    retry = Retry(
        max_attempts=1000, initial_delay=initial_delay, backoff=backoff, max_delay=max_delay, jitter=jitter
    )

    due = retry_due(retry, attempt, NOW, "x@/")

    assert NOW <= due <= NOW + max_delay * 1000 + 1


def test_zero_delay_stays_zero() -> None:
    retry = Retry(max_attempts=1000, initial_delay=0, backoff=100, jitter=False)

    assert retry_due(retry, 999, NOW, "x@/") == NOW


@given(st.text(max_size=20), st.integers(1, 5))
def test_jitter_is_deterministic_between_half_and_full_delay(token: str, attempt: int) -> None:
    retry = Retry(max_attempts=9, initial_delay=1, backoff=1)

    due = retry_due(retry, attempt, NOW, token)

    assert due == retry_due(retry, attempt, NOW, token)
    assert NOW + 500 <= due <= NOW + 1000


def test_jitter_of_known_token_is_stable() -> None:
    assert retry_due(Retry(max_attempts=3), 2, NOW, "charge@/users:5") == NOW + 1156


def test_jitter_differs_between_executions_that_failed_one_after_the_other() -> None:
    """Executions of one workflow that failed together must not come back together."""
    retry = Retry(max_attempts=9, initial_delay=10)

    assert len({retry_due(retry, 1, NOW + ms, "x@/") - ms for ms in range(100)}) > 90


def test_jitter_differs_between_tokens() -> None:
    retry = Retry(max_attempts=9, initial_delay=10)

    assert len({retry_due(retry, 1, NOW, f"x@/s:{item}") for item in range(100)}) > 90


@pytest.mark.parametrize(
    ("retry_at", "due"),
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
def test_retry_at_of_error_delays_retry_within_bounds(retry_at: object, due: int) -> None:
    execution = ExecutionDriver(
        plan("start -> x", x=node(retry={"max_attempts": 2, "initial_delay": 1, "jitter": False}))
    )

    execution.fail("x", retry_at=retry_at)

    assert execution.due("retry", "x") == due - NOW


def test_last_failed_attempt_halts_execution() -> None:
    execution = ExecutionDriver(
        plan("start -> x", x=node(retry={"max_attempts": 3, "initial_delay": 1, "jitter": False}))
    )

    execution.fail("x", code="ONE")
    assert (execution.queue, execution.due("retry", "x")) == (set(), 1000)
    execution.check_fold()
    execution.fire("retry", "x")
    assert execution.token("x").attempt == 2
    execution.fail("x", code="TWO")
    assert execution.due("retry", "x") == 3000
    execution.fire("retry", "x")
    execution.check_fold()
    execution.fail("x", code="THREE")

    assert execution.finish is not None
    assert execution.finish.error is not None
    assert execution.finish.error.code == "THREE"
    assert execution.result("x").attempt == 3


def test_success_after_retry_continues_execution() -> None:
    execution = ExecutionDriver(plan("start -> x -> y", x=node(retry={"max_attempts": 2})))

    execution.fail("x")
    execution.fire("retry", "x")
    execution.ok("x")

    assert execution.queue == {"y@/"}
    assert execution.timers == {}


def test_unknown_outcome_is_not_retried() -> None:
    policy = Retry(max_attempts=5)

    assert is_retried(policy, 1, Error("BROKEN", "no"))
    assert not is_retried(policy, 1, Error("UNKNOWN_OUTCOME", ""))
