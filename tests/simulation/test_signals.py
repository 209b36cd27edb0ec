"""Signals between two states of one execution: what one gave out, the other must not lose."""

from __future__ import annotations

from rune.core.execution.control import deliver_signal
from rune.core.execution.decision import Applied
from rune.core.execution.fact import ExecutionStarted, Fact, NodeResult, NodeSuspended, SignalReceived
from rune.core.execution.fold import fold
from rune.core.execution.rerun import kept_results
from rune.core.execution.routing import decision_for_fact
from rune.core.execution.state import State
from rune.core.execution.step import SIGNAL_TIMEOUT
from rune.core.execution.transition import apply, start_execution
from rune.core.plan.model import Plan
from tests.simulation.case import plan_of
from tests.simulation.oracle.model import Edge, Hear, Model, Node, Retry, Trigger

GO = SignalReceived(30, "k1", "go")


def two_waits() -> Plan:
    nodes = (
        Node("start", Trigger()),
        Node("a", Hear("go"), error="ignore", timeout=1),
        Node("b", Hear("go"), error="ignore", timeout=1, retry=Retry(2)),
    )
    return plan_of(Model("waits", nodes, (Edge("e0", "start", "a"), Edge("e1", "start", "b"))))


def waiting(plan: Plan) -> tuple[State, list[Fact]]:
    """Both wait, `a` for longer."""
    waits = [
        NodeSuspended(plan.index["a"], (), 10, signal="go"),
        NodeSuspended(plan.index["b"], (), 20, signal="go"),
    ]
    state = State()
    start_execution(plan, state, 0)
    for each in waits:
        apply(plan, state, decision_for_fact(plan, each))
    return state, [ExecutionStarted(0), *waits]


def resumed(applied: Applied) -> list[tuple[int, str | None]]:
    return [(token.node, token.signal) for token in applied.emitted]


def test_a_signal_goes_to_who_has_waited_longest() -> None:
    plan = two_waits()
    state, _ = waiting(plan)

    assert resumed(deliver_signal(plan, state, GO)) == [(plan.index["a"], "k1")]
    assert resumed(deliver_signal(plan, state, GO)) == []


def test_what_a_token_ends_without_is_for_the_next() -> None:
    plan = two_waits()
    state, facts = waiting(plan)
    deliver_signal(plan, state, GO)
    late = NodeResult(plan.index["a"], (), 40, "failed", failure=SIGNAL_TIMEOUT)

    applied = apply(plan, state, decision_for_fact(plan, late))
    folded, _ = fold(plan, [*facts, GO, late], 50)

    assert resumed(applied) == [(plan.index["b"], "k1")]
    assert folded.root.live[plan.index["b"]].token == state.root.live[plan.index["b"]].token


def test_a_state_that_gave_a_signal_to_another_is_folded() -> None:
    plan = two_waits()
    state, facts = waiting(plan)
    deliver_signal(plan, state, GO)
    other = NodeResult(plan.index["b"], (), 40, "ok", signal="k1")

    applied = apply(plan, state, decision_for_fact(plan, other))
    folded, _ = fold(plan, [*facts, GO, other], 50)

    assert not applied.known
    assert folded.root.live[plan.index["a"]].waiting


def test_a_rerun_does_not_know_the_signals_of_before() -> None:
    plan = two_waits()
    _, facts = waiting(plan)
    taken = NodeResult(plan.index["a"], (), 40, "ok", signal="k1")
    begins_with = kept_results(plan, [*facts, GO, taken], {(plan.index["b"], ())}, 100)
    again = NodeSuspended(plan.index["b"], (), 110, signal="go")

    folded, applied = fold(
        plan, [ExecutionStarted(100), *begins_with, again, SignalReceived(120, "k1", "go")], 130
    )

    assert resumed(applied) == [(plan.index["b"], "k1")]
    assert folded.received_signals == {"k1"}
