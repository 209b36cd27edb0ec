"""Edges that a result makes alive or dead, and the nodes that are skipped."""

from __future__ import annotations

import pytest

from rune.core.execution.decision import ArriveAtJoin, CollectItem, Decision, FinishExecution, SkipNode
from rune.core.execution.fact import AttemptFailed, NodeResult, NodeSuspended, RaceWinner, TokenFact
from rune.core.execution.outcome import Error, Failure, Output
from rune.core.execution.step import decision_for_fact, skip, step
from rune.core.execution.token import START, Ref, Token
from rune.core.plan.model import Plan
from tests.support.plans import (
    NOW,
    ExecutionDriver,
    aggregator,
    conditional,
    edge_names,
    merge,
    node,
    node_plan,
    plan,
    race,
    split,
    switch,
)


def skipped(plan: Plan, decision: Decision) -> list[str]:
    return [plan.ids[each.node] for each in decision.effects if isinstance(each, SkipNode)]


def arrivals(plan: Plan, decision: Decision) -> list[tuple[str, bool]]:
    return [
        (edge_names(plan, [each.edge])[0], each.alive)
        for each in decision.effects
        if isinstance(each, ArriveAtJoin)
    ]


def test_untaken_branch_is_skipped_breadth_first() -> None:
    p = plan("start -> if -true-> a -> b -> c, if -false-> x -> y, if -false-> z", **{"if": conditional()})
    execution = ExecutionDriver(p)

    decision = step(p, execution.token("if"), Output({}, "true"), NOW)

    assert skipped(p, decision) == ["x", "z", "y"]


def test_join_with_all_edges_dead_in_one_decision_is_skipped() -> None:
    p = plan(
        "start -> if -true-> a, if -false-> x -> m, if -false-> y -> m, m -> n",
        **{"if": conditional()},
        m=merge(),
    )
    execution = ExecutionDriver(p)

    decision = step(p, execution.token("if"), Output({}, "true"), NOW)

    assert skipped(p, decision) == ["x", "y", "m", "n"]
    assert arrivals(p, decision) == []


def test_dead_edge_arrives_at_join_with_other_edges() -> None:
    p = plan("start -> if -true-> a -> m, if -false-> x -> m, m -> n", **{"if": conditional()})
    execution = ExecutionDriver(p)

    decision = step(p, execution.token("if"), Output({}, "true"), NOW)

    assert skipped(p, decision) == ["x"]
    assert arrivals(p, decision) == [("x-m", False)]


def test_join_of_both_conditional_branches_runs_once() -> None:
    execution = ExecutionDriver(
        plan("start -> if -true-> a -> c, if -false-> b -> c", **{"if": conditional()})
    )

    execution.ok("if", outlet="true")
    execution.ok("a")

    assert execution.queue == {"c@/"}
    assert execution.skipped == ["b@/"]
    execution.ok("c")
    assert execution.finish == FinishExecution("completed")


def test_skipped_race_with_timeout_has_result() -> None:
    p = plan(
        "start -> if -true-> a, if -false-> x -> m, if -false-> y -> m",
        **{"if": conditional()},
        m=race({"timeout": 5}),
    )
    execution = ExecutionDriver(p)

    execution.ok("if", outlet="true")

    assert execution.skipped == ["x@/", "y@/", "m@/"]
    assert execution.result("m").status == "skipped"


@pytest.mark.parametrize(
    ("outlet", "runs", "dead"),
    [
        ("case_0", {"a@/"}, {"b@/", "c@/"}),
        ("case_1", {"b@/"}, {"a@/", "c@/"}),
        ("fallback", {"c@/"}, {"a@/", "b@/"}),
    ],
)
def test_switch_follows_edges_of_one_outlet(outlet: str, runs: set[str], dead: set[str]) -> None:
    execution = ExecutionDriver(plan("start -> s -case_0-> a, s -case_1-> b, s -fallback-> c", s=switch()))

    execution.ok("s", outlet=outlet)

    assert execution.queue == runs
    assert set(execution.skipped) == dead


@pytest.mark.parametrize(
    ("policy", "runs", "dead"),
    [("branch", {"e@/"}, {"a@/"}), ("ignore", {"a@/"}, set()), (None, set(), set())],
)
def test_failure_follows_error_policy(policy: str | None, runs: set[str], dead: set[str]) -> None:
    chains = "start -> x -> a, x -!-> e" if policy == "branch" else "start -> x -> a"
    execution = ExecutionDriver(plan(chains, x=node(error=policy) if policy else node()))

    execution.fail("x")

    assert execution.queue == runs
    assert set(execution.skipped) == dead
    if policy is None:
        assert execution.finish is not None
        assert execution.finish.status == "halted"
        assert execution.finish.error is not None
        assert execution.finish.error.code == "BROKEN"


def test_error_edge_is_skipped_on_success() -> None:
    execution = ExecutionDriver(plan("start -> x -> a, x -!-> e", x=node(error="branch")))

    execution.ok("x")

    assert execution.queue == {"a@/"}
    assert execution.skipped == ["e@/"]


def test_engine_error_fails_and_node_error_halts_execution() -> None:
    p = plan("start -> x")
    token = Token(p.index["x"])

    detected = step(p, token, Failure(Error("TIMEOUT", "late", engine=True)), NOW)
    other = step(p, token, Failure(Error("HTTP", "gone")), NOW)

    assert [each.status for each in detected.effects if isinstance(each, FinishExecution)] == ["failed"]
    assert [each.status for each in other.effects if isinstance(each, FinishExecution)] == ["halted"]


def test_failed_result_without_error_halts_execution_without_error() -> None:
    p = plan("start -> x")
    decision = decision_for_fact(p, NodeResult(p.index["x"], (), NOW, "failed"))
    assert decision.effects == (FinishExecution("halted"),)


@pytest.mark.parametrize(
    ("kind", "chains", "runs"),
    [
        (conditional(error="ignore"), "start -> r -true-> a, r -false-> b", {"b@/"}),
        (switch(error="ignore"), "start -> r -case_0-> a, r -case_1-> c, r -fallback-> b", {"b@/"}),
        (split(error="ignore"), "start -> r -> a -> g -> b", {"g@/"}),
        (node(error="ignore"), "start -> r", set()),
    ],
)
def test_ignored_failure_of_routers_splits_and_leaves(
    kind: dict[str, object], chains: str, runs: set[str]
) -> None:
    more = {"g": aggregator()} if "g" in chains else {}
    execution = ExecutionDriver(plan(chains, r=kind, **more))

    execution.fail("r")

    assert execution.queue == runs
    if not runs:
        assert execution.finish == FinishExecution("completed")


def test_ignored_split_passes_error_to_aggregator() -> None:
    execution = ExecutionDriver(plan("start -> s -> x -> g -> y", s=split(error="ignore"), g=aggregator()))

    execution.fail("s")

    assert execution.skipped == ["x@/"]
    assert execution.token("g").items == 0
    assert execution.token("g").error == Ref("result", execution.plan.index["s"])


def test_branched_split_skips_items_and_aggregator() -> None:
    execution = ExecutionDriver(
        plan("start -> s -> x -> g -> y, s -!-> e", s=split(error="branch"), g=aggregator())
    )

    execution.fail("s")

    assert execution.queue == {"e@/"}
    assert execution.skipped == ["x@/", "g@/", "y@/"]


def test_skipped_split_skips_its_aggregator() -> None:
    chains = "start -> if -true-> a -> m, if -false-> s -> x -> g -> m, s -> y -> g"
    execution = ExecutionDriver(plan(chains, **{"if": conditional()}, s=split(), g=aggregator()))

    execution.ok("if", outlet="true")

    assert execution.skipped == ["s@/", "x@/", "y@/", "g@/"]
    execution.ok("a")
    assert execution.queue == {"m@/"}


def test_race_inside_skipped_split_is_skipped() -> None:
    chains = "start -> if -true-> a, if -false-> s -> x -> m, s -> y -> m, m -> g"
    execution = ExecutionDriver(
        plan(chains, **{"if": conditional()}, s=split(), m=race({"timeout": 3}), g=aggregator())
    )

    execution.ok("if", outlet="true")

    assert set(execution.skipped) == {"s@/", "x@/", "y@/", "m@/", "g@/"}


def test_failure_propagates_along_dead_edges_to_joins() -> None:
    execution = ExecutionDriver(
        plan("start -> s -> x -> y -> g, s -> z -> m, y -> m, m -> g", s=split(), g=aggregator())
    )
    execution.fan_out("s", 1)

    decision = step(execution.plan, execution.token("x@/s:0"), Failure(Error("E", "no")), NOW)

    cause = Ref("result", execution.plan.index["x"], execution.token("x@/s:0").path)
    assert [each.mark for each in decision.effects if isinstance(each, CollectItem)] == [3]
    assert [(each.alive, each.error) for each in decision.effects if isinstance(each, ArriveAtJoin)] == [
        (False, cause)
    ]


def test_skipped_join_propagates_error() -> None:
    p = plan("start -> s -> x, x -> a -> m, x -> b -> m, m -> n -> g", s=split(), g=aggregator())
    cause = Ref("result", p.index["x"], (1, 0))

    decision = skip(p, p.index["x"], (1, 0), cause, NOW)

    assert skipped(p, decision) == ["a", "b", "m", "n"]
    assert [each.mark for each in decision.effects if isinstance(each, CollectItem)] == [3]


def test_cancelled_and_skipped_results_kill_all_edges() -> None:
    p = plan("start -> s -> x -> g, x -!-> e -> g", s=split(), x=node(error="branch"), g=aggregator())
    node_index, path = p.index["x"], (p.index["s"], 0)
    previous_error = Ref("result", p.index["s"])

    cancelled = decision_for_fact(p, NodeResult(node_index, path, NOW, "cancelled"))
    dead = decision_for_fact(p, NodeResult(node_index, path, NOW, "skipped", error=previous_error))

    assert [each.mark for each in cancelled.effects if isinstance(each, CollectItem)] == [2, 2]
    assert [each.mark for each in dead.effects if isinstance(each, CollectItem)] == [3, 3]


@pytest.mark.parametrize(
    "fact",
    [
        AttemptFailed(1, (), NOW, 1, Error("E", "no")),
        NodeSuspended(1, (), NOW, due=NOW + 5),
        RaceWinner(1, (), NOW, (), START),
    ],
)
def test_facts_other_than_results_have_no_effects(fact: TokenFact) -> None:
    assert decision_for_fact(plan("start -> x -> y"), fact).effects == ()


def test_empty_fan_out_skips_body_and_runs_aggregator() -> None:
    execution = ExecutionDriver(
        plan("start -> s -> x -> t -> y -> h -> g -> z", s=split(), t=split(), h=aggregator(), g=aggregator())
    )

    execution.fan_out("s", 0)

    assert execution.skipped == ["x@/", "t@/", "y@/", "h@/"]
    assert execution.queue == {"g@/"}
    assert execution.token("g").payload == START
    execution.ok("g", value=[])
    assert execution.queue == {"z@/"}


def test_by_outlet_lists_live_and_dead_edges() -> None:
    p = plan("start -> if -true-> a, if -false-> b, if -true-> c", **{"if": conditional()})

    assert {
        outlet: (edge_names(p, alive), edge_names(p, dead))
        for outlet, (alive, dead) in node_plan(p, "if").by_outlet.items()
    } == {"true": (["if-a", "if-c"], ["if-b"]), "false": (["if-b"], ["if-a", "if-c"])}
