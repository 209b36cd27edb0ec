"""Delivery of signals in the state and in the fold."""

from __future__ import annotations

from rune.core.execution.control import deliver_signal
from rune.core.execution.decision import Applied
from rune.core.execution.fact import ExecutionStarted, Fact, NodeResult, NodeSuspended, SignalReceived
from rune.core.execution.fold import fold
from rune.core.execution.rerun import kept_results
from rune.core.execution.state import State
from rune.core.execution.step import SIGNAL_TIMEOUT, decision_for_fact
from rune.core.execution.transition import apply, start_execution
from rune.core.plan.model import Plan
from tests.simulation.case import compile_model
from tests.simulation.oracle.model import Edge, Model, Node, Retry, SignalWait, Trigger

SIGNAL = SignalReceived(30, "k1", "go")


def two_waits() -> Plan:
    nodes = (
        Node("start", Trigger()),
        Node("a", SignalWait("go"), error="ignore", timeout=1),
        Node("b", SignalWait("go"), error="ignore", timeout=1, retry=Retry(2)),
    )
    return compile_model(Model("waits", nodes, (Edge("e0", "start", "a"), Edge("e1", "start", "b"))))


def waiting_state(plan: Plan) -> tuple[State, list[Fact]]:
    """State and facts in which both nodes wait, `a` for longer."""
    waits = [
        NodeSuspended(plan.index["a"], (), 10, signal="go"),
        NodeSuspended(plan.index["b"], (), 20, signal="go"),
    ]
    state = State()
    start_execution(plan, state, 0)
    for each in waits:
        apply(plan, state, decision_for_fact(plan, each))
    return state, [ExecutionStarted(0), *waits]


def resumed_tokens(applied: Applied) -> list[tuple[int, str | None]]:
    return [(token.node, token.signal) for token in applied.emitted]


def test_signal_resumes_longest_wait_once() -> None:
    plan = two_waits()
    state, _ = waiting_state(plan)

    assert resumed_tokens(deliver_signal(plan, state, SIGNAL)) == [(plan.index["a"], "k1")]
    assert resumed_tokens(deliver_signal(plan, state, SIGNAL)) == []


def test_signal_unused_by_timed_out_token_resumes_next_wait() -> None:
    plan = two_waits()
    state, facts = waiting_state(plan)
    deliver_signal(plan, state, SIGNAL)
    timed_out = NodeResult(plan.index["a"], (), 40, "failed", failure=SIGNAL_TIMEOUT)

    applied = apply(plan, state, decision_for_fact(plan, timed_out))
    folded, _ = fold(plan, [*facts, SIGNAL, timed_out], 50)

    assert resumed_tokens(applied) == [(plan.index["b"], "k1")]
    assert folded.root.live[plan.index["b"]].token == state.root.live[plan.index["b"]].token


def test_signal_taken_by_other_token_requires_fold() -> None:
    plan = two_waits()
    state, facts = waiting_state(plan)
    deliver_signal(plan, state, SIGNAL)
    result_of_b = NodeResult(plan.index["b"], (), 40, "ok", signal="k1")

    applied = apply(plan, state, decision_for_fact(plan, result_of_b))
    folded, _ = fold(plan, [*facts, SIGNAL, result_of_b], 50)

    assert not applied.known
    assert folded.root.live[plan.index["a"]].waiting


def test_rerun_delivers_signal_id_of_earlier_execution() -> None:
    plan = two_waits()
    _, facts = waiting_state(plan)
    result_of_a = NodeResult(plan.index["a"], (), 40, "ok", signal="k1")
    kept = kept_results(plan, [*facts, SIGNAL, result_of_a], {(plan.index["b"], ())}, 100)
    new_wait = NodeSuspended(plan.index["b"], (), 110, signal="go")

    folded, applied = fold(
        plan, [ExecutionStarted(100), *kept, new_wait, SignalReceived(120, "k1", "go")], 130
    )

    assert resumed_tokens(applied) == [(plan.index["b"], "k1")]
    assert folded.received_signals == {"k1"}
