"""Transitions of the state: duplicates, unknown tokens, attempts, races and cancelled regions."""

from __future__ import annotations

import copy

import pytest

from rune.core.execution.control import end_execution
from rune.core.execution.decision import ArriveAtJoin, Decision, FinishExecution, Timer
from rune.core.execution.fact import AttemptFailed, ExecutionEnded, NodeResult, NodeSuspended, RaceWinner
from rune.core.execution.joins import Arrival
from rune.core.execution.outcome import Cancelled, Error, FanOut, Output
from rune.core.execution.state import State, own_timer, started
from rune.core.execution.step import decision_for_fact, step, step_unrun
from rune.core.execution.token import START, Arrived, Ref
from rune.core.execution.transition import FINISH_DELAY_MS, Transition, apply, start_execution
from tests.support.plans import (
    NOW,
    ExecutionDriver,
    aggregator,
    conditional,
    edge_index,
    merge,
    node,
    plan,
    race,
    split,
)


def test_start_marks_triggers_done_and_emits_other_entries() -> None:
    execution = ExecutionDriver(plan("start -> a, b -> c"))

    assert execution.queue == {"a@/", "b@/"}
    assert execution.plan.index["start"] in execution.scope().done
    assert execution.token("a").payload == START


def test_start_of_triggers_only_completes_execution() -> None:
    execution = ExecutionDriver(plan("start"))

    assert execution.finish == FinishExecution("completed")
    assert Timer("finish") in execution.timers


def test_chain_passes_results_to_next_node() -> None:
    execution = ExecutionDriver(plan("start -> a -> b -> c"))

    for name, before in (("a", START), ("b", Ref("result", 1)), ("c", Ref("result", 2))):
        assert execution.queue == {f"{name}@/"}
        assert execution.token(name).payload == before
        execution.ok(name)

    assert execution.finish == FinishExecution("completed")
    assert execution.scope().count == 0


def test_finish_is_set_once_and_arms_finish_timer() -> None:
    execution = ExecutionDriver(plan("start -> a, start -> b", a=node(), b=node()))

    execution.fail("a")
    first = execution.finish
    assert execution.timers == {Timer("finish"): NOW + FINISH_DELAY_MS}
    execution.ok("b")

    assert execution.state.finish == first
    assert execution.finish == first


@pytest.mark.parametrize("order", [("a", "b"), ("b", "a")])
def test_duplicate_decisions_change_nothing(order: tuple[str, str]) -> None:
    execution = ExecutionDriver(plan("start -> a -> m, start -> b -> m", m=merge()))
    decisions = [step(execution.plan, execution.token(name), Output(name), NOW) for name in order]
    for decision in decisions:
        apply(execution.plan, execution.state, decision)
    before = copy.deepcopy(execution.state)

    for decision in decisions * 2:
        assert not apply(execution.plan, execution.state, decision).fresh

    assert execution.state == before


def test_second_result_for_done_token_is_duplicate() -> None:
    execution = ExecutionDriver(plan("start -> a -> b"))
    token = execution.token("a")
    execution.ok("a")

    duplicate = apply(execution.plan, execution.state, step(execution.plan, token, Cancelled(), NOW + 5))

    assert (duplicate.fresh, duplicate.known) == (False, True)
    assert execution.queue == {"b@/"}


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
def test_apply_to_unknown_token_changes_nothing(fact: NodeResult | None) -> None:
    execution = ExecutionDriver(plan("start -> a -> b -> c"))
    before = copy.deepcopy(execution.state)

    applied = apply(execution.plan, execution.state, Decision(2, (), NOW, fact))

    assert (applied.known, applied.fresh) == (False, False)
    assert execution.state == before


def test_ended_item_is_known_and_unstarted_item_is_unknown() -> None:
    execution = ExecutionDriver(
        plan("start -> s -> x -> g -> y", s=split({"max_in_flight": 1}), g=aggregator())
    )
    execution.fan_out("s", 3)
    path = execution.token("x@/s:0").path
    execution.ok("x@/s:0")

    ended = apply(
        execution.plan, execution.state, decision_for_fact(execution.plan, NodeResult(2, path, NOW, "ok"))
    )
    unstarted = apply(
        execution.plan, execution.state, decision_for_fact(execution.plan, NodeResult(2, (1, 2), NOW, "ok"))
    )
    unknown = apply(
        execution.plan, execution.state, decision_for_fact(execution.plan, NodeResult(2, (4, 2), NOW, "ok"))
    )

    assert (ended.known, unstarted.known, unknown.known) == (True, False, False)


def test_nested_item_of_ended_item_counts_as_started() -> None:
    execution = ExecutionDriver(
        plan(
            "start -> s -> t -> x -> h -> g, start -> z", s=split(), t=split(), h=aggregator(), g=aggregator()
        )
    )
    execution.fan_out("s", 1)
    execution.fan_out("t@/s:0", 1)
    path = execution.token("x@/s:0/t:0").path
    execution.ok("x@/s:0/t:0", "h@/s:0")

    assert list(execution.state.scopes) == [()]
    assert started(execution.state, path)
    assert not started(State(), path)
    assert not started(State(), ())


def test_apply_after_end_is_known_and_changes_nothing() -> None:
    execution = ExecutionDriver(plan("start -> a -> b"))
    decision = step(execution.plan, execution.token("a"), Output(), NOW)
    end_execution(execution.state, ExecutionEnded(NOW, "cancelled"))

    applied = apply(execution.plan, execution.state, decision)

    assert (applied.known, applied.fresh, applied.emitted) == (True, False, [])


def test_apply_to_empty_state_is_unknown() -> None:
    p = plan("start -> a")

    assert not apply(p, State(), decision_for_fact(p, NodeResult(1, (), NOW, "ok"))).known


def test_duplicate_attempt_failure_is_ignored() -> None:
    execution = ExecutionDriver(
        plan("start -> x", x=node(retry={"max_attempts": 3, "initial_delay": 1, "jitter": False}))
    )
    execution.fail("x")
    execution.fire("retry", "x")

    duplicate = apply(
        execution.plan,
        execution.state,
        decision_for_fact(execution.plan, AttemptFailed(1, (), NOW, 1, Error("E", "no"))),
    )

    assert not duplicate.fresh
    assert execution.live("x").token.attempt == 2


def test_failed_attempt_of_resumed_token_clears_resumed() -> None:
    execution = ExecutionDriver(
        plan("start -> x", x=node(retry={"max_attempts": 2, "initial_delay": 1, "jitter": False}))
    )

    execution.suspend("x", NOW + 5)
    execution.fire("wait", "x")
    assert execution.token("x").resumed
    execution.fail("x")

    assert own_timer(execution.live("x")) == Timer("retry", 1, (), 2)
    execution.fire("retry", "x")
    assert not execution.token("x").resumed
    execution.check_fold()


def test_failed_attempt_of_suspended_token_stays_suspended() -> None:
    execution = ExecutionDriver(
        plan("start -> x", x=node(retry={"max_attempts": 2, "initial_delay": 1, "jitter": False}))
    )
    token = execution.token("x")
    execution.suspend("x", NOW + 500)

    duplicate = apply(
        execution.plan,
        execution.state,
        decision_for_fact(execution.plan, AttemptFailed(1, (), NOW, token.attempt, Error("E", "no"))),
    )

    assert duplicate.armed == [(Timer("retry", 1, (), 2), NOW + 1000)]
    assert (execution.scope().count, execution.scope().active) == (1, 0)


def test_result_of_suspended_token_disarms_its_timer() -> None:
    execution = ExecutionDriver(plan("start -> x -> y", x=node("wait", {"amount": 5})))
    token = execution.token("x")
    execution.suspend("x", NOW + 5000)
    assert execution.due("wait", "x") == 5000

    execution.record(apply(execution.plan, execution.state, step(execution.plan, token, Output(), NOW)))

    assert execution.timers == {}
    assert execution.queue == {"y@/"}


def test_suspend_for_signal_arms_no_timer() -> None:
    execution = ExecutionDriver(plan("start -> x -> y", x=node("wait", {"resume": "signal"})))

    execution.suspend("x", signal="go")

    assert execution.timers == {}
    assert execution.live("x").signal == "go"
    assert execution.finish is None


RACE = "start -> a -> m, start -> b -> m, start -> c -> d -> m, m -> z"


def test_race_winner_sets_arrivals_payload_and_error() -> None:
    execution = ExecutionDriver(plan(RACE, m=race(), b=node(error="ignore")))
    execution.ok("a")
    arrived = (Arrived(edge_index(execution.plan, "b-m"), Ref("result", 2)),)
    chosen = RaceWinner(execution.plan.index["m"], (), NOW, arrived, Ref("result", 2), Ref("result", 2))

    execution.apply(decision_for_fact(execution.plan, chosen))

    token = execution.live("m").token
    assert (token.arrived, token.payload, token.error) == (arrived, Ref("result", 2), Ref("result", 2))


def test_race_winner_cancels_nodes_that_lead_only_to_race() -> None:
    execution = ExecutionDriver(plan(RACE, m=race({"cancel_losers": True}), d=node("wait", {"amount": 9})))
    execution.ok("c")
    execution.suspend("d", NOW + 9000)
    execution.ok("a")
    token = execution.token("m")

    applied = execution.apply(
        decision_for_fact(execution.plan, RaceWinner(token.node, (), NOW, token.arrived, token.payload))
    )

    assert [execution.name(*each.key) for each in applied.emitted] == ["d@/"]
    assert execution.state.cancelled == {(token.node, ())}


def test_race_result_cancels_losers() -> None:
    execution = ExecutionDriver(plan(RACE, m=race({"cancel_losers": True}), d=node("wait", {"amount": 9})))
    execution.ok("c")
    execution.suspend("d", NOW + 9000)
    execution.ok("a")
    execution.ok("m")

    assert "d@/" in execution.queue
    execution.cancel("d")
    execution.cancel("b")
    execution.ok("z")
    assert execution.finish == FinishExecution("completed")
    assert execution.result("d").status == "cancelled"
    execution.check_fold()


def test_failed_race_cancels_no_loser() -> None:
    execution = ExecutionDriver(plan(RACE, m=race({"cancel_losers": True}, error="ignore")))
    execution.ok("a")

    execution.fail("m")

    assert execution.state.cancelled == set()
    assert execution.queue == {"b@/", "c@/", "z@/"}


CANCELS = "start -> a -> m, start -> s -> x -> g -> m, m -> z"


def test_cancelled_region_starts_no_further_items() -> None:
    execution = ExecutionDriver(
        plan(CANCELS, m=race({"cancel_losers": True}), s=split({"max_in_flight": 2}), g=aggregator())
    )
    execution.fan_out("s", 9)
    assert execution.queue == {"a@/", "x@/s:0", "x@/s:1"}

    execution.ok("a")
    execution.ok("m")
    execution.cancel("x@/s:0")
    assert execution.queue == {"x@/s:1", "z@/"}
    execution.cancel("x@/s:1")

    assert execution.queue == {"g@/", "z@/"}
    execution.cancel("g")
    execution.ok("z")
    assert execution.finish == FinishExecution("completed")
    assert len(execution.state.scopes) == 1


def test_cancelled_fan_out_emits_suspended_items() -> None:
    execution = ExecutionDriver(
        plan(
            CANCELS, m=race({"cancel_losers": True}), s=split(), x=node("wait", {"amount": 9}), g=aggregator()
        )
    )
    execution.fan_out("s", 2)
    execution.suspend("x@/s:0", NOW + 9000)
    execution.suspend("x@/s:1", NOW + 9000)
    execution.ok("a", "m")

    assert execution.queue == {"z@/", "x@/s:0", "x@/s:1"}
    assert execution.scope().fans[execution.plan.index["s"]].active == 2


def test_cancelled_fan_out_opens_aggregator_after_last_item() -> None:
    chains = "start -> a -> m, start -> s -> x -> g -> m, m -> z"
    execution = ExecutionDriver(
        plan(chains, m=race({"cancel_losers": True}), s=split({"max_in_flight": 1}), g=aggregator())
    )
    execution.auto_decide = False
    execution.fan_out("s", 3)
    token = execution.token("x@/s:0")
    execution.ok("a", "m")
    del execution.tokens["x@/s:0"]

    execution.apply(step(execution.plan, token, Cancelled(), NOW))

    assert execution.queue == {"g@/", "z@/"}


def test_cancelled_fan_out_without_open_items_opens_aggregator() -> None:
    chains = "start -> a -> m, start -> s -> g -> m, m -> z"
    execution = ExecutionDriver(plan(chains, m=race({"cancel_losers": True}), s=split(), g=aggregator()))
    execution.auto_decide = False
    execution.fan_out("s", 300)
    assert execution.queue == {"a@/", "s@/"}

    execution.ok("a", "m")

    assert execution.token("g").items == 300
    execution.decide("s")
    execution.cancel("g")
    execution.ok("z")
    assert execution.finish == FinishExecution("completed")


def test_cancelled_fan_out_keeps_items_started_ahead_of_cursor() -> None:
    chains = "start -> a -> m, start -> s -> x -> y -> g -> m, m -> z"
    execution = ExecutionDriver(
        plan(chains, m=race({"cancel_losers": True}), s=split({"max_in_flight": 1}), g=aggregator())
    )
    execution.fan_out("s", 4)
    s, x = execution.plan.index["s"], execution.plan.index["x"]
    execution.state, applied = execution.fold([*execution.facts, NodeResult(x, (s, 2), NOW, "ok")])
    execution.tokens = {}
    execution.record(applied)
    assert execution.queue == {"a@/", "y@/s:2"}

    execution.ok("a", "m")
    assert list(execution.scope().fans[s].marks) == [2, 2, 0, 2]
    execution.cancel("y@/s:2")

    assert execution.queue == {"g@/", "z@/"}


def test_second_arrival_on_same_edge_is_ignored() -> None:
    execution = ExecutionDriver(plan("start -> a -> m, start -> b -> m", m=merge()))
    transition = Transition(execution.plan, execution.state, NOW)
    edge = edge_index(execution.plan, "a-m")

    transition.perform(
        execution.scope(), [ArriveAtJoin(edge, True, START, None), ArriveAtJoin(edge, False, None, None)]
    )

    (barrier,) = execution.scope().barriers.values()
    assert list(barrier.arrivals.values()) == [Arrival(True, START, None, NOW)]
    assert transition.applied.waiting == [(execution.plan.index["m"], (), 1, 2)]


def test_cancelled_split_without_aggregator_closes_fan_out() -> None:
    chains = "start -> a -> m, start -> s, s -!-> e -> m, m -> z"
    execution = ExecutionDriver(plan(chains, m=race({"cancel_losers": True}), s=split(error="branch")))
    execution.auto_decide = False
    execution.fan_out("s", 1_000)
    assert execution.queue == {"a@/", "s@/"}
    execution.ok("a", "m")

    assert execution.scope().fans[execution.plan.index["s"]].closed
    execution.decide("s")
    execution.ok("z")
    assert execution.finish == FinishExecution("completed")


def test_skipped_join_is_listed_in_skipped() -> None:
    chains = "start -> i -true-> a -> m, i -false-> x, start -> j -true-> b -> m, j -false-> y"
    execution = ExecutionDriver(plan(chains, i=conditional(), j=conditional()))
    execution.ok("i", outlet="false")
    execution.ok("j", outlet="false")

    assert set(execution.skipped) == {"a@/", "b@/", "m@/"}


def test_duplicate_result_of_ended_item_is_not_fresh() -> None:
    execution = ExecutionDriver(plan("start -> s -> x", s=split()))
    execution.fan_out("s", 1)
    token = execution.token("x@/s:0")
    execution.ok("x@/s:0")

    duplicate = apply(execution.plan, execution.state, step(execution.plan, token, Output(), NOW))

    assert (duplicate.known, duplicate.fresh) == (True, False)


def test_duplicate_fan_out_starts_no_items() -> None:
    execution = ExecutionDriver(plan("start -> s -> x", s=split()))
    token = execution.token("s")
    execution.fan_out("s", 2)

    duplicate = apply(execution.plan, execution.state, step(execution.plan, token, FanOut(5), NOW))

    assert (duplicate.fresh, duplicate.emitted) == (False, [])


def test_duplicate_dispatch_starts_no_items() -> None:
    execution = ExecutionDriver(plan("start -> s -> x", s=split()))
    execution.auto_decide = False
    execution.fan_out("s", 200)
    dispatch = step_unrun(execution.plan, execution.tokens.pop("s@/"), NOW)
    assert apply(execution.plan, execution.state, dispatch).fresh

    assert not apply(execution.plan, execution.state, dispatch).fresh
    assert len(execution.state.scopes) == 201


def test_start_arms_execution_deadline() -> None:
    p = plan("start -> a", settings={"timeout": 60})

    applied = start_execution(p, State(), NOW)

    assert (Timer("deadline"), NOW + 60_000) in applied.armed
