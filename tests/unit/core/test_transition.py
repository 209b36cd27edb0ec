"""A decision becomes true in one act: once, counted, and only on a state that knows its token."""

from __future__ import annotations

import copy

import pytest

from rune.core.execution.control import end_execution
from rune.core.execution.decision import ArriveAtJoin, Decision, FinishExecution, Timer
from rune.core.execution.fact import AttemptFailed, ExecutionEnded, NodeResult, NodeSuspended, RaceWinner
from rune.core.execution.joins import Arrival
from rune.core.execution.outcome import Cancelled, Error, FanOut, Output
from rune.core.execution.routing import decision_for_fact
from rune.core.execution.state import State, own_timer, started
from rune.core.execution.step import step, step_unrun
from rune.core.execution.token import START, Arrived, Ref
from rune.core.execution.transition import FINISH_DELAY_MS, Transition, apply, start_execution
from tests.unit.core.plans import NOW, Life, choose, edge, gather, merge, node, plan, race, split


def test_triggers_have_run_and_other_entries_get_their_token() -> None:
    life = Life(plan("start -> a, b -> c"))

    assert life.queue == {"a@/", "b@/"}
    assert life.plan.index["start"] in life.scope().done
    assert life.token("a").payload == START


def test_a_definition_of_nothing_but_triggers_completes_at_once() -> None:
    life = Life(plan("start"))

    assert life.finish == FinishExecution("completed")
    assert Timer("finish") in life.timers


def test_a_chain_hands_on_its_results() -> None:
    life = Life(plan("start -> a -> b -> c"))

    for name, before in (("a", START), ("b", Ref("result", 1)), ("c", Ref("result", 2))):
        assert life.queue == {f"{name}@/"}
        assert life.token(name).payload == before
        life.ok(name)

    assert life.finish == FinishExecution("completed")
    assert life.scope().count == 0


def test_the_end_comes_once_with_a_timer_that_makes_sure_of_it() -> None:
    life = Life(plan("start -> a, start -> b", a=node(), b=node()))

    life.fail("a")
    first = life.finish
    assert life.timers == {Timer("finish"): NOW + FINISH_DELAY_MS}
    life.ok("b")

    assert life.state.finish == first
    assert life.finish == first


@pytest.mark.parametrize("order", [("a", "b"), ("b", "a")])
def test_twins_of_every_kind_change_nothing(order: tuple[str, str]) -> None:
    life = Life(plan("start -> a -> m, start -> b -> m", m=merge()))
    made = [step(life.plan, life.token(name), Output(name), NOW) for name in order]
    for decision in made:
        apply(life.plan, life.state, decision)
    before = copy.deepcopy(life.state)

    for decision in made * 2:
        assert not apply(life.plan, life.state, decision).fresh

    assert life.state == before


def test_another_result_for_a_token_that_is_done_is_a_twin_too() -> None:
    life = Life(plan("start -> a -> b"))
    token = life.token("a")
    life.ok("a")

    late = apply(life.plan, life.state, step(life.plan, token, Cancelled(), NOW + 5))

    assert (late.fresh, late.known) == (False, True)
    assert life.queue == {"b@/"}


@pytest.mark.parametrize(
    "fact",
    [
        NodeResult(2, (), NOW, "ok"),
        NodeResult(2, (), NOW, "failed", failure=Error("E", "no")),
        AttemptFailed(2, (), NOW, 1, Error("E", "no")),
        NodeSuspended(2, (), NOW, 1, NOW + 5),
        RaceWinner(2, (), NOW, (), START),
        None,
    ],
)
def test_a_token_that_the_state_has_never_heard_of(fact: NodeResult | None) -> None:
    life = Life(plan("start -> a -> b -> c"))
    before = copy.deepcopy(life.state)

    applied = apply(life.plan, life.state, Decision(2, (), NOW, fact))

    assert (applied.known, applied.fresh) == (False, False)
    assert life.state == before


def test_an_item_that_was_never_started_is_unknown_and_one_that_has_ended_is_known() -> None:
    life = Life(plan("start -> s -> x -> g -> y", s=split({"max_in_flight": 1}), g=gather()))
    life.fan("s", 3)
    path = life.token("x@/s:0").path
    life.ok("x@/s:0")

    ended = apply(life.plan, life.state, decision_for_fact(life.plan, NodeResult(2, path, NOW, "ok")))
    unborn = apply(life.plan, life.state, decision_for_fact(life.plan, NodeResult(2, (1, 2), NOW, "ok")))
    nowhere = apply(life.plan, life.state, decision_for_fact(life.plan, NodeResult(2, (4, 2), NOW, "ok")))

    assert (ended.known, unborn.known, nowhere.known) == (True, False, False)


def test_an_item_inside_an_item_that_has_ended_was_started() -> None:
    life = Life(
        plan("start -> s -> t -> x -> h -> g, start -> z", s=split(), t=split(), h=gather(), g=gather())
    )
    life.fan("s", 1)
    life.fan("t@/s:0", 1)
    path = life.token("x@/s:0/t:0").path
    life.ok("x@/s:0/t:0", "h@/s:0")

    assert list(life.state.scopes) == [()]
    assert started(life.state, path)
    assert not started(State(), path)
    assert not started(State(), ())


def test_after_the_terminal_mark_everything_is_known_and_nothing_changes() -> None:
    life = Life(plan("start -> a -> b"))
    decision = step(life.plan, life.token("a"), Output(), NOW)
    end_execution(life.state, ExecutionEnded(NOW, "cancelled"))

    applied = apply(life.plan, life.state, decision)

    assert (applied.known, applied.fresh, applied.emitted) == (True, False, [])


def test_a_state_that_never_began_must_be_folded() -> None:
    p = plan("start -> a")

    assert not apply(p, State(), decision_for_fact(p, NodeResult(1, (), NOW, "ok"))).known


def test_an_attempt_counts_once() -> None:
    life = Life(plan("start -> x", x=node(retry={"max_attempts": 3, "initial_delay": 1, "jitter": False})))
    life.fail("x")
    life.fire("retry", "x")

    again = apply(
        life.plan, life.state, decision_for_fact(life.plan, AttemptFailed(1, (), NOW, 1, Error("E", "no")))
    )

    assert not again.fresh
    assert life.live("x").token.attempt == 2


def test_a_failed_attempt_of_a_resumed_token_starts_over() -> None:
    life = Life(plan("start -> x", x=node(retry={"max_attempts": 2, "initial_delay": 1, "jitter": False})))

    life.sleep("x", NOW + 5)
    life.fire("wait", "x")
    assert life.token("x").resumed
    life.fail("x")

    assert own_timer(life.live("x")) == Timer("retry", 1, (), 2)
    life.fire("retry", "x")
    assert not life.token("x").resumed
    life.check_fold()


def test_a_failed_attempt_of_a_token_that_was_asleep_stays_asleep() -> None:
    life = Life(plan("start -> x", x=node(retry={"max_attempts": 2, "initial_delay": 1, "jitter": False})))
    token = life.token("x")
    life.sleep("x", NOW + 500)

    late = apply(
        life.plan,
        life.state,
        decision_for_fact(life.plan, AttemptFailed(1, (), NOW, token.attempt, Error("E", "no"))),
    )

    assert late.armed == [(Timer("retry", 1, (), 2), NOW + 1000)]
    assert (life.scope().count, life.scope().active) == (1, 0)


def test_the_result_of_a_sleeping_token_drops_its_timer() -> None:
    life = Life(plan("start -> x -> y", x=node("wait", {"amount": 5})))
    token = life.token("x")
    life.sleep("x", NOW + 5000)
    assert life.due("wait", "x") == 5000

    life.take(apply(life.plan, life.state, step(life.plan, token, Output(), NOW)))

    assert life.timers == {}
    assert life.queue == {"y@/"}


def test_a_signal_is_waited_for_without_a_timer() -> None:
    life = Life(plan("start -> x -> y", x=node("wait", {"resume": "signal"})))

    life.sleep("x", signal="go")

    assert life.timers == {}
    assert life.live("x").signal == "go"
    assert life.finish is None


RACE = "start -> a -> m, start -> b -> m, start -> c -> d -> m, m -> z"


def test_a_choice_says_who_opened_the_race() -> None:
    life = Life(plan(RACE, m=race(), b=node(error="ignore")))
    life.ok("a")
    arrived = (Arrived(edge(life.plan, "b-m"), Ref("result", 2)),)
    chosen = RaceWinner(life.plan.index["m"], (), NOW, arrived, Ref("result", 2), Ref("result", 2))

    life.apply(decision_for_fact(life.plan, chosen))

    token = life.live("m").token
    assert (token.arrived, token.payload, token.error) == (arrived, Ref("result", 2), Ref("result", 2))


def test_a_choice_cancels_what_leads_only_to_the_race() -> None:
    life = Life(plan(RACE, m=race({"cancel_losers": True}), d=node("wait", {"amount": 9})))
    life.ok("c")
    life.sleep("d", NOW + 9000)
    life.ok("a")
    token = life.token("m")

    applied = life.apply(
        decision_for_fact(life.plan, RaceWinner(token.node, (), NOW, token.arrived, token.payload))
    )

    assert [life.name(*each.key) for each in applied.emitted] == ["d@/"]
    assert life.state.cancelled == {(token.node, ())}


def test_the_result_of_a_race_cancels_its_losers_too() -> None:
    life = Life(plan(RACE, m=race({"cancel_losers": True}), d=node("wait", {"amount": 9})))
    life.ok("c")
    life.sleep("d", NOW + 9000)
    life.ok("a")
    life.ok("m")

    assert "d@/" in life.queue
    life.cancel("d")
    life.cancel("b")
    life.ok("z")
    assert life.finish == FinishExecution("completed")
    assert life.result("d").status == "cancelled"
    life.check_fold()


def test_a_race_that_failed_cancels_nobody() -> None:
    life = Life(plan(RACE, m=race({"cancel_losers": True}, error="ignore")))
    life.ok("a")

    life.fail("m")

    assert life.state.cancelled == set()
    assert life.queue == {"b@/", "c@/", "z@/"}


CANCELS = "start -> a -> m, start -> s -> x -> g -> m, m -> z"


def test_a_cancelled_region_starts_no_further_items() -> None:
    life = Life(plan(CANCELS, m=race({"cancel_losers": True}), s=split({"max_in_flight": 2}), g=gather()))
    life.fan("s", 9)
    assert life.queue == {"a@/", "x@/s:0", "x@/s:1"}

    life.ok("a")
    life.ok("m")
    life.cancel("x@/s:0")
    assert life.queue == {"x@/s:1", "z@/"}
    life.cancel("x@/s:1")

    assert life.queue == {"g@/", "z@/"}
    life.cancel("g")
    life.ok("z")
    assert life.finish == FinishExecution("completed")
    assert len(life.state.scopes) == 1


def test_a_cancelled_fan_out_whose_items_all_wait_is_woken_item_by_item() -> None:
    life = Life(
        plan(CANCELS, m=race({"cancel_losers": True}), s=split(), x=node("wait", {"amount": 9}), g=gather())
    )
    life.fan("s", 2)
    life.sleep("x@/s:0", NOW + 9000)
    life.sleep("x@/s:1", NOW + 9000)
    life.ok("a", "m")

    assert life.queue == {"z@/", "x@/s:0", "x@/s:1"}
    assert life.scope().fans[life.plan.index["s"]].active == 2


def test_a_cancelled_fan_out_without_items_in_flight_ends_at_once() -> None:
    chains = "start -> a -> m, start -> s -> x -> g -> m, m -> z"
    life = Life(plan(chains, m=race({"cancel_losers": True}), s=split({"max_in_flight": 1}), g=gather()))
    life.auto = False
    life.fan("s", 3)
    token = life.token("x@/s:0")
    life.ok("a", "m")
    del life.tokens["x@/s:0"]

    life.apply(step(life.plan, token, Cancelled(), NOW))

    assert life.queue == {"g@/", "z@/"}


def test_a_cancelled_fan_out_that_nothing_is_left_of_opens_its_aggregator() -> None:
    chains = "start -> a -> m, start -> s -> g -> m, m -> z"
    life = Life(plan(chains, m=race({"cancel_losers": True}), s=split(), g=gather()))
    life.auto = False
    life.fan("s", 300)
    assert life.queue == {"a@/", "s@/"}

    life.ok("a", "m")

    assert life.token("g").items == 300
    life.decide("s")
    life.cancel("g")
    life.ok("z")
    assert life.finish == FinishExecution("completed")


def test_a_cancelled_fan_out_spares_the_items_that_a_fold_started_ahead() -> None:
    chains = "start -> a -> m, start -> s -> x -> y -> g -> m, m -> z"
    life = Life(plan(chains, m=race({"cancel_losers": True}), s=split({"max_in_flight": 1}), g=gather()))
    life.fan("s", 4)
    s, x = life.plan.index["s"], life.plan.index["x"]
    life.state, applied = life.fold([*life.facts, NodeResult(x, (s, 2), NOW, "ok")])
    life.tokens = {}
    life.take(applied)
    assert life.queue == {"a@/", "y@/s:2"}

    life.ok("a", "m")
    assert list(life.scope().fans[s].marks) == [2, 2, 0, 2]
    life.cancel("y@/s:2")

    assert life.queue == {"g@/", "z@/"}


def test_the_first_arrival_of_a_party_is_the_one_that_counts() -> None:
    life = Life(plan("start -> a -> m, start -> b -> m", m=merge()))
    act = Transition(life.plan, life.state, NOW)
    party = edge(life.plan, "a-m")

    act.perform(
        life.scope(), [ArriveAtJoin(party, True, START, None), ArriveAtJoin(party, False, None, None)]
    )

    (barrier,) = life.scope().barriers.values()
    assert list(barrier.arrivals.values()) == [Arrival(True, START, None, NOW)]
    assert act.applied.waiting == [(life.plan.index["m"], (), 1, 2)]


def test_a_cancelled_split_without_an_aggregator_just_stops() -> None:
    chains = "start -> a -> m, start -> s, s -!-> e -> m, m -> z"
    life = Life(plan(chains, m=race({"cancel_losers": True}), s=split(error="branch")))
    life.auto = False
    life.fan("s", 1_000)
    assert life.queue == {"a@/", "s@/"}
    life.ok("a", "m")

    assert life.scope().fans[life.plan.index["s"]].closed
    life.decide("s")
    life.ok("z")
    assert life.finish == FinishExecution("completed")


def test_a_skipped_join_names_itself_in_what_followed() -> None:
    chains = "start -> i -true-> a -> m, i -false-> x, start -> j -true-> b -> m, j -false-> y"
    life = Life(plan(chains, i=choose(), j=choose()))
    life.ok("i", outlet="false")
    life.ok("j", outlet="false")

    assert set(life.skipped) == {"a@/", "b@/", "m@/"}


def test_what_ran_stays_done_when_the_same_item_comes_again() -> None:
    life = Life(plan("start -> s -> x", s=split()))
    life.fan("s", 1)
    token = life.token("x@/s:0")
    life.ok("x@/s:0")

    late = apply(life.plan, life.state, step(life.plan, token, Output(), NOW))

    assert (late.known, late.fresh) == (True, False)


def test_a_twin_of_a_fan_out_starts_nothing_again() -> None:
    life = Life(plan("start -> s -> x", s=split()))
    token = life.token("s")
    life.fan("s", 2)

    late = apply(life.plan, life.state, step(life.plan, token, FanOut(5), NOW))

    assert (late.fresh, late.emitted) == (False, [])


def test_a_twin_of_a_dispatch_is_no_result() -> None:
    life = Life(plan("start -> s -> x", s=split()))
    life.auto = False
    life.fan("s", 200)
    dispatch = step_unrun(life.plan, life.tokens.pop("s@/"), NOW)
    assert apply(life.plan, life.state, dispatch).fresh

    assert not apply(life.plan, life.state, dispatch).fresh
    assert len(life.state.scopes) == 201


def test_a_deadline_is_armed_at_the_start() -> None:
    p = plan("start -> a", settings={"timeout": 60})

    applied = start_execution(p, State(), NOW)

    assert (Timer("deadline"), NOW + 60_000) in applied.armed
