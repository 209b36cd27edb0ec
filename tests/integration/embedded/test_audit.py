"""`verify_execution` on signals and on results kept from an earlier execution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import pytest

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
from rune.core.execution.stored_value import Inline
from rune.core.plan.model import Plan
from rune.ports.journal import ExecutionRecord, StoredFact
from rune.ports.queries import Summary
from rune.runtime.queries.verify import Claims, VerificationReport, verify_execution
from rune.testing.harness import compiled
from tests.support.documents import document, node

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


def verify(
    facts: Sequence[Fact], claims: Claims, *, late: Sequence[Fact] = (), plan: Plan = PLAN
) -> VerificationReport:
    """Verify an execution with these facts, in this order."""
    accepted = ExecutionRecord(id="x", workflow="w", hash=plan.hash, at=1, input=Inline(b"{}"))
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


def received(id: str) -> SignalReceived:
    return SignalReceived(2, id, "go", None, Inline(b"1"))


def violations(report: VerificationReport) -> list[tuple[str, str]]:
    return [(each.rule, each.subject) for each in report.violations]


def test_signals_consumed_once_are_valid() -> None:
    facts: list[Fact] = [
        received("s"),
        wait(A),
        result(A, signal="s"),
        wait(B),
        received("t"),
        result(B, signal="t"),
        DONE,
    ]

    report = verify(facts, {(A, ()): 2, (B, ()): 2})

    assert violations(report) == []
    assert (report.results, report.waits, report.effects, report.repeated) == (2, 2, 2, 0)


def test_unconsumed_signal_is_valid() -> None:
    facts: list[Fact] = [received("s"), received("t"), wait(A), result(A, signal="t"), result(B), DONE]

    assert violations(verify(facts, {(A, ()): 2, (B, ()): 1})) == []


def test_consuming_signal_never_received_is_violation() -> None:
    facts: list[Fact] = [received("t"), wait(A), result(A, signal="s"), result(B), DONE]

    report = verify(facts, {(A, ()): 2, (B, ()): 1})

    assert violations(report) == [("signal", "a@/")]
    assert "never received" in report.violations[0].message


def test_consuming_signal_received_after_end_is_violation() -> None:
    facts: list[Fact] = [wait(A), result(A, signal="s"), result(B), DONE]

    assert violations(verify(facts, {(A, ()): 2, (B, ()): 1}, late=[received("s")])) == [("signal", "a@/")]


def test_consuming_signal_twice_is_violation() -> None:
    facts: list[Fact] = [received("s"), wait(A), result(A, signal="s"), wait(B), result(B, signal="s"), DONE]

    report = verify(facts, {(A, ()): 2, (B, ()): 2})

    assert violations(report) == [("signal", "b@/")]
    assert "consumed before" in report.violations[0].message


def test_failed_attempt_consumes_its_signal() -> None:
    failed = AttemptFailed(B, (), 4, 1, Error("E", "said"), "s")
    facts: list[Fact] = [
        received("s"),
        result(A),
        wait(B),
        failed,
        wait(B, 2),
        result(B, signal="s", attempt=2),
        DONE,
    ]

    assert violations(verify(facts, {(A, ()): 1, (B, ()): 4})) == [("signal", "b@/")]
    facts[5] = result(B, signal="t", attempt=2)
    assert violations(verify([received("t"), *facts], {(A, ()): 1, (B, ()): 4})) == []
    assert violations(verify(facts[1:], {(A, ()): 1, (B, ()): 4})) == [("signal", "b@/"), ("signal", "b@/")]


def test_duplicate_signal_id_is_violation() -> None:
    facts: list[Fact] = [received("s"), received("s"), wait(A), result(A, signal="s"), result(B), DONE]

    report = verify(facts, {(A, ()): 2, (B, ()): 1})

    assert violations(report) == [("once", "execution")]
    assert "signal" in report.violations[0].message


def test_kept_result_needs_no_claim_and_is_no_effect() -> None:
    report = verify([result(A, kept=True), result(B), DONE], {(B, ()): 1})

    assert violations(report) == []
    assert (report.results, report.effects, report.claims, report.repeated) == (2, 1, 1, 0)


def test_result_without_claim_is_violation() -> None:
    assert violations(verify([result(A), result(B), DONE], {(B, ()): 1})) == [("claimed", "a@/")]


def test_signal_of_kept_result_need_not_be_received() -> None:
    facts: list[Fact] = [
        result(A, kept=True, signal="s"),
        wait(B),
        received("t"),
        result(B, signal="t"),
        DONE,
    ]

    assert violations(verify(facts, {(B, ()): 2})) == []


def test_kept_result_does_not_consume_signal() -> None:
    """The same key in another execution is another signal."""
    facts: list[Fact] = [
        result(A, kept=True, signal="s"),
        received("s"),
        wait(B),
        result(B, signal="s"),
        DONE,
    ]

    assert violations(verify(facts, {(B, ()): 2})) == []


def test_kept_result_at_unreachable_node_is_violation() -> None:
    assert ("placed", "b@/") in violations(verify([result(B, kept=True)], {}))


@pytest.mark.parametrize("fact", [EffectStarted(A, (), 2, 1), PauseChanged(2, 1, True)])
def test_started_effect_and_pause_are_valid_once(fact: Fact) -> None:
    assert violations(verify([fact], {})) == []
    assert violations(verify([fact, fact], {})) == [
        ("once", "execution" if isinstance(fact, PauseChanged) else "a@/")
    ]
