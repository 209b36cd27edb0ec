"""The state is the fold of the journal, for every order of it."""

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
    PauseChanged,
    fact_key,
)
from rune.core.execution.fold import fold
from rune.core.execution.outcome import Error
from rune.core.execution.state import State
from rune.core.limits import Limits
from rune.core.plan.compiler import compile_definition
from rune.core.plan.model import Plan
from tests.simulation.oracle.document import to_document
from tests.simulation.oracle.generate import random_model
from tests.simulation.profile import random_profile
from tests.simulation.run import registry
from tests.simulation.verdict import check_counts, picture, settled
from tests.simulation.world import World
from tests.unit.core.plans import NOW, Life, choose, gather, merge, most, node, plan, race, split


def shown(p: Plan, state: State) -> Any:
    return picture(settled(p, state), NOW)


def test_an_empty_journal_is_the_start() -> None:
    p = plan("start -> a, b")

    state, applied = fold(p, [ExecutionStarted(NOW)], NOW + 5)

    assert [p.ids[each.node] for each in applied.emitted] == ["a", "b"]
    assert state.started_at == NOW
    assert not state.folding


def test_a_fold_sends_what_is_open_and_arms_what_waits() -> None:
    life = Life(
        plan("start -> a -> m, start -> b -> m, start -> w", m=merge(), w=node("wait", {"amount": 9}))
    )
    life.ok("a")
    life.sleep("w", NOW + 9_000)

    state, applied = life.fold()

    assert [life.plan.ids[each.node] for each in applied.emitted] == ["b"]
    assert dict(applied.armed) == life.timers
    assert state.scopes[()].count == 2


def test_skips_follow_without_facts() -> None:
    life = Life(
        plan(
            "start -> i -true-> a -> j, i -false-> b -> j, start -> k -true-> a2 -> j", i=choose(), k=choose()
        )
    )
    life.ok("i", outlet="true")
    life.ok("k", outlet="true")

    _, applied = life.fold()

    assert [life.name(*each) for each in applied.skipped] == ["b@/"]


def test_a_join_skipped_in_two_steps_is_skipped_in_the_fold() -> None:
    chains = "start -> i -true-> a, i -false-> b -> j, start -> k -true-> c, k -false-> d -> j, j -> e"
    life = Life(plan(chains, i=choose(), k=choose()))
    life.ok("i", outlet="true")
    life.ok("k", outlet="true")

    _, applied = life.fold()

    assert {life.name(*each) for each in applied.skipped} == {"b@/", "d@/", "j@/", "e@/"}
    life.check_fold()


def test_the_last_result_ends_the_execution_in_the_fold_too() -> None:
    life = Life(plan("start -> a -> b"))
    life.ok("a", "b")

    state, applied = life.fold()

    assert applied.finish == FinishExecution("completed")
    assert applied.armed == [(Timer("finish"), 0)]
    assert state.finish == FinishExecution("completed")


def test_a_halt_is_found_again() -> None:
    life = Life(plan("start -> a, start -> b"))
    life.fail("a")

    assert life.fold()[1].finish == life.finish


def test_facts_after_the_terminal_row_are_not_folded() -> None:
    life = Life(plan("start -> a -> b"))
    life.ok("a")
    life.facts.append(ExecutionEnded(NOW, "cancelled"))
    life.ok("b")

    state, applied = life.fold()

    assert state.ended
    assert state.finish == FinishExecution("cancelled")
    assert (state.scopes, applied.emitted, applied.armed) == ({}, [], [])


def test_facts_that_nothing_leads_to_are_left_alone() -> None:
    life = Life(plan("start -> a -> b -> c"))
    stray = NodeResult(life.plan.index["c"], (), NOW, "ok")

    state, applied = life.fold([*life.facts, stray, NodeResult(1, (3, 4), NOW, "ok")])

    assert [life.plan.ids[each.node] for each in applied.emitted] == ["a"]
    assert state.finish is None


def test_items_with_facts_are_in_flight_then_the_lowest_indices() -> None:
    life = Life(plan("start -> s -> x -> y -> g", s=split({"max_in_flight": 3}), g=gather()))
    life.fan("s", 9)
    x = life.plan.index["x"]
    facts = [*life.facts, NodeResult(x, (1, 7), NOW, "ok"), NodeResult(x, (1, 5), NOW, "ok")]

    state, applied = life.fold(facts)

    assert {life.name(*each.key) for each in applied.emitted} == {"y@/s:7", "y@/s:5", "x@/s:0"}
    assert state.root.fans[1].in_flight == 3
    check_counts(state)


def test_a_fold_keeps_nothing_of_items_behind_the_cursor() -> None:
    life = Life(plan("start -> s -> x -> g", s=split({"max_in_flight": 2}), g=gather()))
    life.fan("s", 40)
    for item in range(30):
        life.ok(f"x@/s:{item}")

    state, _ = life.fold()

    assert state.root.fans[1].ahead == set()
    assert state.root.fans[1].next == 32
    life.check_fold()


def test_the_cursor_passes_what_was_started_ahead_of_it() -> None:
    life = Life(plan("start -> s -> x -> y -> g", s=split({"max_in_flight": 2}), g=gather()))
    life.fan("s", 6)
    x, y = life.plan.index["x"], life.plan.index["y"]
    known: list[Fact] = [NodeResult(x, (1, 2), NOW, "ok"), NodeResult(x, (1, 4), NOW, "ok")]
    state, _ = life.fold([*life.facts, *known])
    assert (state.root.fans[1].next, state.root.fans[1].ahead) == (0, {2, 4})

    ended: list[Fact] = [
        NodeResult(y, (1, 2), NOW, "ok"),
        NodeResult(x, (1, 0), NOW, "ok"),
        NodeResult(y, (1, 0), NOW, "ok"),
    ]
    state, applied = life.fold([*life.facts, *known, *ended])

    assert (state.root.fans[1].next, state.root.fans[1].ahead) == (3, {4})
    assert {life.name(*each.key) for each in applied.emitted} == {"y@/s:4", "x@/s:1"}


@pytest.mark.parametrize("count", [0, 1, 700])
def test_a_fan_out_without_any_item_facts(count: int) -> None:
    life = Life(plan("start -> s -> x -> g", s=split({"max_in_flight": 600}), g=gather()))
    life.fan("s", count)

    life.check_fold()


def test_nested_fan_outs() -> None:
    life = Life(plan("start -> s -> t -> x -> h -> y -> g", s=split(), t=split(), h=gather(), g=gather()))
    life.fan("s", 3)
    life.fan("t@/s:1", 2)
    life.fan("t@/s:2", 0)
    life.ok("x@/s:1/t:1")
    life.check_fold()
    life.ok("x@/s:1/t:0", "h@/s:1")

    life.check_fold()
    life.ok("h@/s:2", "y@/s:1", "y@/s:2")
    life.check_fold()


def test_a_join_that_was_given_up_before_it_opened() -> None:
    life = Life(plan("start -> a -> m, start -> b -> m, m -> z", m=merge(error="ignore")))
    life.ok("a")
    life.fire("join", "m")
    life.ok("b")

    life.check_fold()


def test_an_aggregator_that_was_given_up_closes_its_fan_out() -> None:
    life = Life(plan("start -> s -> x -> g -> z", s=split({"max_in_flight": 1}), g=gather(error="ignore")))
    life.fan("s", 5)
    life.ok("x@/s:0")
    life.fire("join", "g")

    state, applied = life.fold()

    assert state.root.fans[1].closed
    assert "z@/" in {life.name(*each.key) for each in applied.emitted}


def test_a_race_goes_the_way_its_arrivals_were_journaled() -> None:
    life = Life(plan("start -> a -> m, start -> b -> m", m=race()))
    life.now += 10
    life.ok("b")
    life.now += 10
    life.ok("a")

    for facts in (life.facts, life.facts[::-1]):
        _, applied = life.fold(facts)
        (token,) = applied.emitted
        assert [life.plan.ids[life.plan.src[each.edge]] for each in token.arrived] == ["b"]


def test_attempts_suspensions_and_results_in_any_order() -> None:
    retry = {"max_attempts": 3, "initial_delay": 1, "jitter": False}
    life = Life(plan("start -> w -> z", w=node("wait", {"amount": 1}, retry=retry)))
    life.sleep("w", NOW + 1_000)
    life.fire("wait", "w")
    life.fail("w")
    life.fire("retry", "w")
    life.sleep("w", life.now + 1_000)

    for seed in range(6):
        facts = list(life.facts)
        Random(seed).shuffle(facts)
        state, _ = life.fold(facts)
        assert shown(life.plan, state) == shown(life.plan, life.state)
        assert state.root.live[life.plan.index["w"]].due == life.live("w").due


def test_pauses_park_in_the_fold_and_resumes_send() -> None:
    life = Life(plan("start -> a -> b, start -> w", w=node("wait", {"amount": 1})))
    life.sleep("w", NOW + 1_000)
    life.pause()
    life.ok("a")

    state, applied = life.fold()
    assert (applied.emitted, state.paused_at) == ([], NOW)
    assert state.root.live[life.plan.index["b"]].parked
    assert not state.root.live[life.plan.index["w"]].parked
    life.now += 700
    life.resume()
    state, applied = life.fold(life.facts[::-1])

    assert [life.plan.ids[each.node] for each in applied.emitted] == ["b"]
    assert (state.paused_at, state.pauses, state.pause_state) == (None, [(NOW, NOW + 700)], 2)


def test_uncollected_failures_are_counted_again() -> None:
    life = Life(plan("start -> s -> x, start -> z", s=split()))
    life.fan("s", 12)
    life.fail(*[f"x@/s:{item}" for item in range(12)])

    state, _ = life.fold(life.facts[::-1])

    assert (state.failures, state.first_failures) == (12, life.state.first_failures)


def test_limits_hold_in_a_fold() -> None:
    life = Life(plan("start -> s -> x", s=split()), limits=Limits(window=2))
    life.fan("s", 5)

    state, applied = life.fold()

    assert len(applied.emitted) == 2
    assert state.limits.window == 2


def test_an_unreachable_join_is_found_again() -> None:
    chains = "start -> i -true-> a -> m, i -false-> x, start -> b -> m, m -> z"
    life = Life(plan(chains, i=choose(), m=most(2, error="ignore")))
    life.auto = False
    life.ok("b")
    life.ok("i", outlet="false")
    assert life.token("m").fate.value == "unreachable"
    life.check_fold()

    life.decide("m")
    life.check_fold()


def journal(seed: int) -> tuple[Plan, list[Fact], int]:
    """The rows of a random execution in a random world, as far as it came."""
    model, start = random_model(seed, 8)
    parsed = parse_data(Decoded(to_document(model)))
    assert parsed.definition is not None
    p = compile_definition(parsed.definition, registry().catalogue)
    rng = Random(f"fold-{seed}")
    world = World(p, registry(), start, random_profile(rng), rng)
    world.run()
    rows: list[Fact] = [each for each in world.journal.facts.values() if not isinstance(each, ExecutionEnded)]
    return p, rows[: rng.randint(1, len(rows))], world.now


def placed(p: Plan, state: State) -> Any:
    """A picture without what an open race or the filling of a window may differ in."""
    return (
        picture(settled(p, state), 0)[0].keys(),
        state.failures,
        state.first_failures,
        sorted(state.cancelled),
    )


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 10**6), st.randoms(use_true_random=False))
def test_the_order_of_the_journal_does_not_matter(seed: int, rng: Random) -> None:
    p, facts, now = journal(seed)
    first, applied = fold(p, facts, now)
    check_counts(first)
    rng.shuffle(facts)

    second, again = fold(p, facts, now)

    assert picture(settled(p, first), now) == picture(settled(p, second), now)
    assert placed(p, first) == placed(p, second)
    assert sorted(applied.armed, key=repr) == sorted(again.armed, key=repr)
    assert {each.key for each in applied.emitted} == {each.key for each in again.emitted}


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6))
def test_the_order_of_twins_does_not_matter_either(seed: int) -> None:
    p, facts, now = journal(seed)
    unique = {fact_key(each): each for each in facts}

    once, _ = fold(p, list(unique.values()), now)

    assert len(unique) == len(facts)
    assert picture(settled(p, once), now) == picture(settled(p, fold(p, facts, now)[0]), now)


def test_controls_are_read_by_number() -> None:
    p = plan("start -> a")

    state, applied = fold(
        p, [PauseChanged(NOW + 9, 2, False), PauseChanged(NOW, 1, True), ExecutionStarted(NOW)], NOW
    )

    assert state.pauses == [(NOW, NOW + 9)]
    assert len(applied.emitted) == 1


def test_a_result_is_stronger_than_what_came_before_it() -> None:
    life = Life(plan("start -> x -> y", x=node(retry={"max_attempts": 2})))
    life.fail("x")
    life.fire("retry", "x")
    life.ok("x")

    _, applied = life.fold(life.facts[::-1])

    assert [life.plan.ids[each.node] for each in applied.emitted] == ["y"]
    assert Error("BROKEN", "x failed").engine is False
