"""Signals between two states of one execution: what one gave out, the other must not lose."""

from __future__ import annotations

from rune.core.execution.control import hear
from rune.core.execution.decision import Applied
from rune.core.execution.fact import Fact, Result, Signal, Start, Suspension
from rune.core.execution.fold import fold
from rune.core.execution.rerun import kept
from rune.core.execution.routing import follow
from rune.core.execution.state import State
from rune.core.execution.step import UNHEARD
from rune.core.execution.transition import apply, begin
from rune.core.plan.model import Plan
from tests.oracle.model import Edge, Hear, Model, Node, Retry, Trigger
from tests.sim.case import plan_of

GO = Signal(30, "k1", "go")


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
        Suspension(plan.index["a"], (), 10, signal="go"),
        Suspension(plan.index["b"], (), 20, signal="go"),
    ]
    state = State()
    begin(plan, state, 0)
    for each in waits:
        apply(plan, state, follow(plan, each))
    return state, [Start(0), *waits]


def resumed(applied: Applied) -> list[tuple[int, str | None]]:
    return [(token.node, token.signal) for token in applied.emitted]


def test_a_signal_goes_to_who_has_waited_longest() -> None:
    plan = two_waits()
    state, _ = waiting(plan)

    assert resumed(hear(plan, state, GO)) == [(plan.index["a"], "k1")]
    assert resumed(hear(plan, state, GO)) == []


def test_what_a_token_ends_without_is_for_the_next() -> None:
    plan = two_waits()
    state, facts = waiting(plan)
    hear(plan, state, GO)
    late = Result(plan.index["a"], (), 40, "failed", failure=UNHEARD)

    applied = apply(plan, state, follow(plan, late))
    folded, _ = fold(plan, [*facts, GO, late], 50)

    assert resumed(applied) == [(plan.index["b"], "k1")]
    assert folded.root.live[plan.index["b"]].token == state.root.live[plan.index["b"]].token


def test_a_state_that_gave_a_signal_to_another_is_folded() -> None:
    plan = two_waits()
    state, facts = waiting(plan)
    hear(plan, state, GO)
    other = Result(plan.index["b"], (), 40, "ok", signal="k1")

    applied = apply(plan, state, follow(plan, other))
    folded, _ = fold(plan, [*facts, GO, other], 50)

    assert not applied.known
    assert folded.root.live[plan.index["a"]].waiting


def test_a_rerun_does_not_know_the_signals_of_before() -> None:
    plan = two_waits()
    _, facts = waiting(plan)
    taken = Result(plan.index["a"], (), 40, "ok", signal="k1")
    begins_with = kept(plan, [*facts, GO, taken], {(plan.index["b"], ())}, 100)
    again = Suspension(plan.index["b"], (), 110, signal="go")

    folded, applied = fold(plan, [Start(100), *begins_with, again, Signal(120, "k1", "go")], 130)

    assert resumed(applied) == [(plan.index["b"], "k1")]
    assert folded.heard == {"k1"}
