"""Folding facts into a state, in any order of the facts."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rune.core.definition.parser import parse_data
from rune.core.definition.strict_json import Decoded
from rune.core.execution.decision import FinishExecution, Timer
from rune.core.execution.fact import (
    ExecutionEnded,
    ExecutionStarted,
    Fact,
    NodeResult,
    NodeSuspended,
    PauseChanged,
    fact_key,
)
from rune.core.execution.fold import due_after_loss, fold
from rune.core.execution.outcome import Error
from rune.core.execution.state import State
from rune.core.limits import Limits
from rune.core.plan.compiler import compile_definition
from rune.core.plan.model import Plan
from tests.simulation.invariants import check_counts, settled_state, state_summary
from tests.simulation.oracle.document import to_document
from tests.simulation.oracle.generate import random_model
from tests.simulation.profile import random_profile
from tests.simulation.run import registry
from tests.simulation.simulator import PlanSimulator
from tests.support.plans import (
    NOW,
    ExecutionDriver,
    aggregator,
    conditional,
    merge,
    node,
    plan,
    quorum,
    race,
    split,
)


def summary_of(p: Plan, state: State) -> Any:
    return state_summary(settled_state(p, state), NOW)


def test_execution_is_due_at_once_after_loss_unless_every_token_waits() -> None:
    p = plan("start -> w, a", w=node("wait", {"amount": 1, "unit": "hours"}))
    start = ExecutionStarted(NOW)
    waits = NodeSuspended(p.index["w"], (), NOW, 1, due=NOW + 3_600_000)
    done = NodeResult(p.index["a"], (), NOW, "ok")
    end = ExecutionEnded(NOW, "cancelled")

    assert due_after_loss(*fold(p, [start, waits], NOW)) is None
    assert due_after_loss(*fold(p, [start, waits, done], NOW)) == NOW + 3_600_000
    assert due_after_loss(*fold(p, [start, waits, done, end], NOW)) is None


def test_fold_of_start_fact_emits_entries() -> None:
    p = plan("start -> a, b")

    state, applied = fold(p, [ExecutionStarted(NOW)], NOW + 5)

    assert [p.ids[each.node] for each in applied.emitted] == ["a", "b"]
    assert state.started_at == NOW
    assert not state.folding


def test_fold_emits_open_tokens_and_arms_timers() -> None:
    execution = ExecutionDriver(
        plan("start -> a -> m, start -> b -> m, start -> w", m=merge(), w=node("wait", {"amount": 9}))
    )
    execution.ok("a")
    execution.suspend("w", NOW + 9_000)

    state, applied = execution.fold()

    assert [execution.plan.ids[each.node] for each in applied.emitted] == ["b"]
    assert dict(applied.armed) == execution.timers
    assert state.scopes[()].count == 2


def test_fold_derives_skips_without_facts() -> None:
    execution = ExecutionDriver(
        plan(
            "start -> i -true-> a -> j, i -false-> b -> j, start -> k -true-> a2 -> j",
            i=conditional(),
            k=conditional(),
        )
    )
    execution.ok("i", outlet="true")
    execution.ok("k", outlet="true")

    _, applied = execution.fold()

    assert [execution.name(*each) for each in applied.skipped] == ["b@/"]


def test_fold_skips_join_whose_edges_died_in_two_decisions() -> None:
    chains = "start -> i -true-> a, i -false-> b -> j, start -> k -true-> c, k -false-> d -> j, j -> e"
    execution = ExecutionDriver(plan(chains, i=conditional(), k=conditional()))
    execution.ok("i", outlet="true")
    execution.ok("k", outlet="true")

    _, applied = execution.fold()

    assert {execution.name(*each) for each in applied.skipped} == {"b@/", "d@/", "j@/", "e@/"}
    execution.check_fold()


def test_fold_of_last_result_finishes_execution() -> None:
    execution = ExecutionDriver(plan("start -> a -> b"))
    execution.ok("a", "b")

    state, applied = execution.fold()

    assert applied.finish == FinishExecution("completed")
    assert applied.armed == [(Timer("finish"), 0)]
    assert state.finish == FinishExecution("completed")


def test_fold_restores_halt() -> None:
    execution = ExecutionDriver(plan("start -> a, start -> b"))
    execution.fail("a")

    assert execution.fold()[1].finish == execution.finish


def test_fold_ignores_facts_after_execution_ended() -> None:
    execution = ExecutionDriver(plan("start -> a -> b"))
    execution.ok("a")
    execution.facts.append(ExecutionEnded(NOW, "cancelled"))
    execution.ok("b")

    state, applied = execution.fold()

    assert state.ended
    assert state.finish == FinishExecution("cancelled")
    assert (state.scopes, applied.emitted, applied.armed) == ({}, [], [])


def test_fold_ignores_unreachable_facts() -> None:
    execution = ExecutionDriver(plan("start -> a -> b -> c"))
    unreachable = NodeResult(execution.plan.index["c"], (), NOW, "ok")

    state, applied = execution.fold([*execution.facts, unreachable, NodeResult(1, (3, 4), NOW, "ok")])

    assert [execution.plan.ids[each.node] for each in applied.emitted] == ["a"]
    assert state.finish is None


def test_fold_fills_window_with_started_then_lowest_items() -> None:
    execution = ExecutionDriver(
        plan("start -> s -> x -> y -> g", s=split({"max_in_flight": 3}), g=aggregator())
    )
    execution.fan_out("s", 9)
    x = execution.plan.index["x"]
    facts = [*execution.facts, NodeResult(x, (1, 7), NOW, "ok"), NodeResult(x, (1, 5), NOW, "ok")]

    state, applied = execution.fold(facts)

    assert {execution.name(*each.key) for each in applied.emitted} == {"y@/s:7", "y@/s:5", "x@/s:0"}
    assert state.root.fans[1].in_flight == 3
    check_counts(state)


def test_fold_keeps_no_items_behind_cursor() -> None:
    execution = ExecutionDriver(plan("start -> s -> x -> g", s=split({"max_in_flight": 2}), g=aggregator()))
    execution.fan_out("s", 40)
    for item in range(30):
        execution.ok(f"x@/s:{item}")

    state, _ = execution.fold()

    assert state.root.fans[1].ahead == set()
    assert state.root.fans[1].next == 32
    execution.check_fold()


def test_fold_cursor_passes_items_started_ahead() -> None:
    execution = ExecutionDriver(
        plan("start -> s -> x -> y -> g", s=split({"max_in_flight": 2}), g=aggregator())
    )
    execution.fan_out("s", 6)
    x, y = execution.plan.index["x"], execution.plan.index["y"]
    started: list[Fact] = [NodeResult(x, (1, 2), NOW, "ok"), NodeResult(x, (1, 4), NOW, "ok")]
    state, _ = execution.fold([*execution.facts, *started])
    assert (state.root.fans[1].next, state.root.fans[1].ahead) == (0, {2, 4})

    ended: list[Fact] = [
        NodeResult(y, (1, 2), NOW, "ok"),
        NodeResult(x, (1, 0), NOW, "ok"),
        NodeResult(y, (1, 0), NOW, "ok"),
    ]
    state, applied = execution.fold([*execution.facts, *started, *ended])

    assert (state.root.fans[1].next, state.root.fans[1].ahead) == (3, {4})
    assert {execution.name(*each.key) for each in applied.emitted} == {"y@/s:4", "x@/s:1"}


@pytest.mark.parametrize("count", [0, 1, 700])
def test_fold_of_fan_out_without_item_facts(count: int) -> None:
    execution = ExecutionDriver(plan("start -> s -> x -> g", s=split({"max_in_flight": 600}), g=aggregator()))
    execution.fan_out("s", count)

    execution.check_fold()


def test_fold_of_nested_fan_outs() -> None:
    execution = ExecutionDriver(
        plan("start -> s -> t -> x -> h -> y -> g", s=split(), t=split(), h=aggregator(), g=aggregator())
    )
    execution.fan_out("s", 3)
    execution.fan_out("t@/s:1", 2)
    execution.fan_out("t@/s:2", 0)
    execution.ok("x@/s:1/t:1")
    execution.check_fold()
    execution.ok("x@/s:1/t:0", "h@/s:1")

    execution.check_fold()
    execution.ok("h@/s:2", "y@/s:1", "y@/s:2")
    execution.check_fold()


def test_fold_of_timed_out_join() -> None:
    execution = ExecutionDriver(plan("start -> a -> m, start -> b -> m, m -> z", m=merge(error="ignore")))
    execution.ok("a")
    execution.fire("join", "m")
    execution.ok("b")

    execution.check_fold()


def test_fold_of_timed_out_aggregator_closes_fan_out() -> None:
    execution = ExecutionDriver(
        plan("start -> s -> x -> g -> z", s=split({"max_in_flight": 1}), g=aggregator(error="ignore"))
    )
    execution.fan_out("s", 5)
    execution.ok("x@/s:0")
    execution.fire("join", "g")

    state, applied = execution.fold()

    assert state.root.fans[1].closed
    assert "z@/" in {execution.name(*each.key) for each in applied.emitted}


def test_fold_counts_item_whose_join_expired_before_the_aggregator_opened() -> None:
    p = plan("start -> s -> m -> g, s -> b -> m", s=split(), m=merge(), g=aggregator())
    s, m, g = (p.index[name] for name in "smg")
    facts = (
        NodeResult(s, (), NOW, "ok", items=1),
        NodeResult(m, (s, 0), NOW + 1, "failed", failure=Error("TIMEOUT", "late", engine=True)),
        NodeResult(g, (), NOW + 2, "ok"),
    )

    state, _ = fold(p, facts, NOW + 3)

    assert state.failed_items == 1


def test_fold_opens_race_with_earliest_arrival() -> None:
    execution = ExecutionDriver(plan("start -> a -> m, start -> b -> m", m=race()))
    execution.now += 10
    execution.ok("b")
    execution.now += 10
    execution.ok("a")

    for facts in (execution.facts, execution.facts[::-1]):
        _, applied = execution.fold(facts)
        (token,) = applied.emitted
        assert [execution.plan.ids[execution.plan.src[each.edge]] for each in token.arrived] == ["b"]


def test_fold_of_attempts_and_suspensions_ignores_order() -> None:
    retry = {"max_attempts": 3, "initial_delay": 1, "jitter": False}
    execution = ExecutionDriver(plan("start -> w -> z", w=node("wait", {"amount": 1}, retry=retry)))
    execution.suspend("w", NOW + 1_000)
    execution.fire("wait", "w")
    execution.fail("w")
    execution.fire("retry", "w")
    execution.suspend("w", execution.now + 1_000)

    for seed in range(6):
        facts = list(execution.facts)
        Random(seed).shuffle(facts)
        state, _ = execution.fold(facts)
        assert summary_of(execution.plan, state) == summary_of(execution.plan, execution.state)
        assert state.root.live[execution.plan.index["w"]].due == execution.live("w").due


def test_fold_parks_tokens_in_pause_and_emits_after_resume() -> None:
    execution = ExecutionDriver(plan("start -> a -> b, start -> w", w=node("wait", {"amount": 1})))
    execution.suspend("w", NOW + 1_000)
    execution.pause()
    execution.ok("a")

    state, applied = execution.fold()
    assert (applied.emitted, state.paused_at) == ([], NOW)
    assert state.root.live[execution.plan.index["b"]].parked
    assert not state.root.live[execution.plan.index["w"]].parked
    execution.now += 700
    execution.resume()
    state, applied = execution.fold(execution.facts[::-1])

    assert [execution.plan.ids[each.node] for each in applied.emitted] == ["b"]
    assert (state.paused_at, state.pauses, state.pause_state) == (None, [(NOW, NOW + 700)], 2)


def test_fold_counts_uncollected_failures() -> None:
    execution = ExecutionDriver(plan("start -> s -> x, start -> z", s=split()))
    execution.fan_out("s", 12)
    execution.fail(*[f"x@/s:{item}" for item in range(12)])

    state, _ = execution.fold(execution.facts[::-1])

    assert (state.failures, state.first_failures) == (12, execution.state.first_failures)


def test_fold_respects_limits() -> None:
    execution = ExecutionDriver(plan("start -> s -> x", s=split()), limits=Limits(window=2))
    execution.fan_out("s", 5)

    state, applied = execution.fold()

    assert len(applied.emitted) == 2
    assert state.limits.window == 2


def test_fold_restores_unreachable_join() -> None:
    chains = "start -> i -true-> a -> m, i -false-> x, start -> b -> m, m -> z"
    execution = ExecutionDriver(plan(chains, i=conditional(), m=quorum(2, error="ignore")))
    execution.auto_decide = False
    execution.ok("b")
    execution.ok("i", outlet="false")
    assert execution.token("m").fate.value == "unreachable"
    execution.check_fold()

    execution.decide("m")
    execution.check_fold()


def journal(seed: int) -> tuple[Plan, list[Fact], int]:
    """A prefix of the facts of a random simulated execution."""
    model, start = random_model(seed, 8)
    parsed = parse_data(Decoded(to_document(model)))
    assert parsed.definition is not None
    p = compile_definition(parsed.definition, registry().catalogue)
    rng = Random(f"fold-{seed}")
    simulator = PlanSimulator(p, registry(), start, random_profile(rng), rng)
    simulator.run()
    rows: list[Fact] = [
        each for each in simulator.journal.facts.values() if not isinstance(each, ExecutionEnded)
    ]
    return p, rows[: rng.randint(1, len(rows))], simulator.now


def stable_parts(p: Plan, state: State) -> Any:
    """The parts of a state that do not depend on open races or on the window of a fan-out."""
    return (
        state_summary(settled_state(p, state), 0)[0].keys(),
        state.failures,
        state.first_failures,
        sorted(state.cancelled),
    )


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 10**6), st.randoms(use_true_random=False))
def test_fold_of_random_journal_ignores_order(seed: int, rng: Random) -> None:
    p, facts, now = journal(seed)
    first, applied = fold(p, facts, now)
    check_counts(first)
    rng.shuffle(facts)

    second, second_applied = fold(p, facts, now)

    assert state_summary(settled_state(p, first), now) == state_summary(settled_state(p, second), now)
    assert stable_parts(p, first) == stable_parts(p, second)
    assert sorted(applied.armed, key=repr) == sorted(second_applied.armed, key=repr)
    assert {each.key for each in applied.emitted} == {each.key for each in second_applied.emitted}


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6))
def test_fold_of_facts_deduplicated_by_key_is_equal(seed: int) -> None:
    p, facts, now = journal(seed)
    unique = {fact_key(each): each for each in facts}

    once, _ = fold(p, list(unique.values()), now)

    assert len(unique) == len(facts)
    assert state_summary(settled_state(p, once), now) == state_summary(
        settled_state(p, fold(p, facts, now)[0]), now
    )


def test_fold_orders_pauses_by_number() -> None:
    p = plan("start -> a")

    state, applied = fold(
        p, [PauseChanged(NOW + 9, 2, False), PauseChanged(NOW, 1, True), ExecutionStarted(NOW)], NOW
    )

    assert state.pauses == [(NOW, NOW + 9)]
    assert len(applied.emitted) == 1


def test_fold_prefers_result_over_failed_attempt() -> None:
    execution = ExecutionDriver(plan("start -> x -> y", x=node(retry={"max_attempts": 2})))
    execution.fail("x")
    execution.fire("retry", "x")
    execution.ok("x")

    _, applied = execution.fold(execution.facts[::-1])

    assert [execution.plan.ids[each.node] for each in applied.emitted] == ["y"]
    assert Error("BROKEN", "x failed").engine is False
