"""The audit as a function: what it makes of signals, and of results that an execution began with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import pytest

from rune.codec.facts import Inline
from rune.core.execution.fact import (
    AttemptFailed,
    EffectStarted,
    ExecutionEnded,
    Fact,
    NodeResult,
    NodeSuspended,
    PauseChanged,
    SignalReceived,
)
from rune.core.execution.outcome import Error
from rune.core.plan.model import Plan
from rune.ports.journal import ExecutionRecord, StoredFact
from rune.ports.queries import Summary
from rune.runtime.queries.verify import Claims, VerificationReport, verify_execution
from rune.testing.harness import compiled
from tests.unit.core.documents import document, node

EFFECT = {"effectful": True}
PLAN = compiled(
    document(
        [
            node("in", "input"),
            node("a", "noop", parameters=EFFECT),
            node("b", "noop", parameters=EFFECT, retry={"max_attempts": 3}),
        ],
        "in>a",
        "a>b",
    )
)
A, B = PLAN.index["a"], PLAN.index["b"]
DONE = ExecutionEnded(9, "completed")


def examined(
    facts: Sequence[Fact], claims: Claims, *, late: Sequence[Fact] = (), plan: Plan = PLAN
) -> VerificationReport:
    """The audit of an execution with these facts, in this order."""
    accepted = ExecutionRecord(id="x", workflow="w", hash=plan.hash, at=1, input=b"{}")
    numbered = enumerate([*facts, *late], start=1)
    stored = [StoredFact(number, fact, late=number > len(facts)) for number, fact in numbered]
    end = next((each for each in facts if isinstance(each, ExecutionEnded)), None)
    summary = Summary(
        id="x",
        workflow="w",
        hash=plan.hash,
        status=end.status if end else "running",
        started_at=1,
        ended_at=end.at if end else None,
    )
    return verify_execution(plan, accepted, stored, claims, summary)


def result(
    node: int,
    *,
    signal: str | None = None,
    kept: bool = False,
    attempt: int = 1,
    status: Literal["ok", "cancelled"] = "ok",
) -> NodeResult:
    return NodeResult(node, (), 5, status, value=Inline(b"1"), signal=signal, kept=kept, attempt=attempt)


def wait(node: int, attempt: int = 1) -> NodeSuspended:
    return NodeSuspended(node, (), 3, attempt, signal="go")


def heard(id: str) -> SignalReceived:
    return SignalReceived(2, id, "go", None, Inline(b"1"))


def broken(report: VerificationReport) -> list[tuple[str, str]]:
    return [(each.rule, each.subject) for each in report.violations]


def test_signals_that_came_and_were_taken_once_are_sound() -> None:
    facts: list[Fact] = [
        heard("s"),
        wait(A),
        result(A, signal="s"),
        wait(B),
        heard("t"),
        result(B, signal="t"),
        DONE,
    ]

    report = examined(facts, {(A, ()): 2, (B, ()): 2})

    assert broken(report) == []
    assert (report.results, report.waits, report.effects, report.repeated) == (2, 2, 2, 0)


def test_a_signal_that_nobody_took_is_sound() -> None:
    facts: list[Fact] = [heard("s"), heard("t"), wait(A), result(A, signal="t"), result(B), DONE]

    assert broken(examined(facts, {(A, ()): 2, (B, ()): 1})) == []


def test_a_signal_that_never_came_cannot_be_taken() -> None:
    facts: list[Fact] = [heard("t"), wait(A), result(A, signal="s"), result(B), DONE]

    report = examined(facts, {(A, ()): 2, (B, ()): 1})

    assert broken(report) == [("heard", "a@/")]
    assert "never received" in report.violations[0].message


def test_a_signal_that_came_behind_the_end_was_not_there_to_be_taken() -> None:
    facts: list[Fact] = [wait(A), result(A, signal="s"), result(B), DONE]

    assert broken(examined(facts, {(A, ()): 2, (B, ()): 1}, late=[heard("s")])) == [("heard", "a@/")]


def test_a_signal_cannot_be_taken_twice() -> None:
    facts: list[Fact] = [heard("s"), wait(A), result(A, signal="s"), wait(B), result(B, signal="s"), DONE]

    report = examined(facts, {(A, ()): 2, (B, ()): 2})

    assert broken(report) == [("heard", "b@/")]
    assert "consumed before" in report.violations[0].message


def test_an_attempt_takes_a_signal_as_a_result_does() -> None:
    failed = AttemptFailed(B, (), 4, 1, Error("E", "said"), "s")
    facts: list[Fact] = [
        heard("s"),
        result(A),
        wait(B),
        failed,
        wait(B, 2),
        result(B, signal="s", attempt=2),
        DONE,
    ]

    assert broken(examined(facts, {(A, ()): 1, (B, ()): 4})) == [("heard", "b@/")]
    facts[5] = result(B, signal="t", attempt=2)
    assert broken(examined([heard("t"), *facts], {(A, ()): 1, (B, ()): 4})) == []
    assert broken(examined(facts[1:], {(A, ()): 1, (B, ()): 4})) == [("heard", "b@/"), ("heard", "b@/")]


def test_the_same_signal_id_twice_is_a_second_row() -> None:
    facts: list[Fact] = [heard("s"), heard("s"), wait(A), result(A, signal="s"), result(B), DONE]

    report = examined(facts, {(A, ()): 2, (B, ()): 1})

    assert broken(report) == [("once", "execution")]
    assert "signal" in report.violations[0].message


def test_a_kept_result_needs_no_claim_and_counts_as_no_effect() -> None:
    report = examined([result(A, kept=True), result(B), DONE], {(B, ()): 1})

    assert broken(report) == []
    assert (report.results, report.effects, report.claims, report.repeated) == (2, 1, 1, 0)


def test_a_result_that_is_not_kept_needs_its_claim() -> None:
    assert broken(examined([result(A), result(B), DONE], {(B, ()): 1})) == [("claimed", "a@/")]


def test_the_signal_of_a_kept_result_came_to_the_execution_before() -> None:
    facts: list[Fact] = [result(A, kept=True, signal="s"), wait(B), heard("t"), result(B, signal="t"), DONE]

    assert broken(examined(facts, {(B, ()): 2})) == []


def test_a_kept_result_takes_no_signal_away_from_this_execution() -> None:
    """A key may be used again: to the new execution it is another signal."""
    facts: list[Fact] = [result(A, kept=True, signal="s"), heard("s"), wait(B), result(B, signal="s"), DONE]

    assert broken(examined(facts, {(B, ()): 2})) == []


def test_a_kept_result_must_fit_like_any_other() -> None:
    assert ("placed", "b@/") in broken(examined([result(B, kept=True)], {}))


@pytest.mark.parametrize("fact", [EffectStarted(A, (), 2, 1), PauseChanged(2, 1, True)])
def test_what_was_begun_and_what_was_paused_needs_no_place(fact: Fact) -> None:
    assert broken(examined([fact], {})) == []
    assert broken(examined([fact, fact], {})) == [
        ("once", "execution" if isinstance(fact, PauseChanged) else "a@/")
    ]
