"""Which edges a result makes alive, and how far a dead one reaches."""

from __future__ import annotations

import pytest

from rune.core.execution.decision import ArriveAtJoin, CollectItem, Decision, FinishExecution, SkipNode
from rune.core.execution.fact import AttemptFailed, NodeResult, NodeSuspended, RaceWinner, TokenFact
from rune.core.execution.outcome import Error, Failure, Output
from rune.core.execution.routing import decision_for_fact, skip
from rune.core.execution.step import step
from rune.core.execution.token import START, Ref, Token
from rune.core.plan.model import Plan
from tests.unit.core.plans import (
    NOW,
    Life,
    at,
    choose,
    edge_names,
    gather,
    merge,
    node,
    plan,
    race,
    split,
    switch,
)


def skipped(plan: Plan, decision: Decision) -> list[str]:
    return [plan.ids[each.node] for each in decision.effects if isinstance(each, SkipNode)]


def told(plan: Plan, decision: Decision) -> list[tuple[str, bool]]:
    return [
        (edge_names(plan, [each.edge])[0], each.alive)
        for each in decision.effects
        if isinstance(each, ArriveAtJoin)
    ]


def test_an_untaken_branch_is_skipped_to_its_end_breadth_first() -> None:
    p = plan("start -> if -true-> a -> b -> c, if -false-> x -> y, if -false-> z", **{"if": choose()})
    life = Life(p)

    decision = step(p, life.token("if"), Output({}, "true"), NOW)

    assert skipped(p, decision) == ["x", "z", "y"]


def test_a_join_all_of_whose_edges_die_in_one_decision_is_skipped_in_it() -> None:
    p = plan(
        "start -> if -true-> a, if -false-> x -> m, if -false-> y -> m, m -> n", **{"if": choose()}, m=merge()
    )
    life = Life(p)

    decision = step(p, life.token("if"), Output({}, "true"), NOW)

    assert skipped(p, decision) == ["x", "y", "m", "n"]
    assert told(p, decision) == []


def test_a_join_that_also_waits_for_others_is_told() -> None:
    p = plan("start -> if -true-> a -> m, if -false-> x -> m, m -> n", **{"if": choose()})
    life = Life(p)

    decision = step(p, life.token("if"), Output({}, "true"), NOW)

    assert skipped(p, decision) == ["x"]
    assert told(p, decision) == [("x-m", False)]


def test_a_conditional_into_one_join_runs_it_once() -> None:
    life = Life(plan("start -> if -true-> a -> c, if -false-> b -> c", **{"if": choose()}))

    life.ok("if", outlet="true")
    life.ok("a")

    assert life.queue == {"c@/"}
    assert life.skipped == ["b@/"]
    life.ok("c")
    assert life.finish == FinishExecution("completed")


def test_a_race_that_may_be_given_up_is_always_told() -> None:
    p = plan(
        "start -> if -true-> a, if -false-> x -> m, if -false-> y -> m",
        **{"if": choose()},
        m=race({"timeout": 5}),
    )
    life = Life(p)

    life.ok("if", outlet="true")

    assert life.skipped == ["x@/", "y@/", "m@/"]
    assert life.result("m").status == "skipped"


@pytest.mark.parametrize(
    ("outlet", "runs", "dead"),
    [
        ("case_0", {"a@/"}, {"b@/", "c@/"}),
        ("case_1", {"b@/"}, {"a@/", "c@/"}),
        ("fallback", {"c@/"}, {"a@/", "b@/"}),
    ],
)
def test_a_switch_takes_the_edges_of_one_outlet(outlet: str, runs: set[str], dead: set[str]) -> None:
    life = Life(plan("start -> s -case_0-> a, s -case_1-> b, s -fallback-> c", s=switch()))

    life.ok("s", outlet=outlet)

    assert life.queue == runs
    assert set(life.skipped) == dead


@pytest.mark.parametrize(
    ("policy", "runs", "dead"),
    [("branch", {"e@/"}, {"a@/"}), ("ignore", {"a@/"}, set()), (None, set(), set())],
)
def test_policies_of_a_failure(policy: str | None, runs: set[str], dead: set[str]) -> None:
    chains = "start -> x -> a, x -!-> e" if policy == "branch" else "start -> x -> a"
    life = Life(plan(chains, x=node(error=policy) if policy else node()))

    life.fail("x")

    assert life.queue == runs
    assert set(life.skipped) == dead
    if policy is None:
        assert life.finish is not None
        assert life.finish.status == "halted"
        assert life.finish.error is not None
        assert life.finish.error.code == "BROKEN"


def test_an_error_edge_is_never_followed_on_success() -> None:
    life = Life(plan("start -> x -> a, x -!-> e", x=node(error="branch")))

    life.ok("x")

    assert life.queue == {"a@/"}
    assert life.skipped == ["e@/"]


def test_what_the_engine_detects_fails_and_anything_else_halts() -> None:
    p = plan("start -> x")
    token = Token(p.index["x"])

    detected = step(p, token, Failure(Error("TIMEOUT", "late", engine=True)), NOW)
    other = step(p, token, Failure(Error("HTTP", "gone")), NOW)

    assert [each.status for each in detected.effects if isinstance(each, FinishExecution)] == ["failed"]
    assert [each.status for each in other.effects if isinstance(each, FinishExecution)] == ["halted"]


@pytest.mark.parametrize(
    ("kind", "chains", "runs"),
    [
        (choose(error="ignore"), "start -> r -true-> a, r -false-> b", {"b@/"}),
        (switch(error="ignore"), "start -> r -case_0-> a, r -case_1-> c, r -fallback-> b", {"b@/"}),
        (split(error="ignore"), "start -> r -> a -> g -> b", {"g@/"}),
        (node(error="ignore"), "start -> r", set()),
    ],
)
def test_ignore_on_routers_splits_and_leaves(kind: dict[str, object], chains: str, runs: set[str]) -> None:
    more = {"g": gather()} if "g" in chains else {}
    life = Life(plan(chains, r=kind, **more))

    life.fail("r")

    assert life.queue == runs
    if not runs:
        assert life.finish == FinishExecution("completed")


def test_an_ignored_split_has_no_items_and_its_error_reaches_the_aggregator() -> None:
    life = Life(plan("start -> s -> x -> g -> y", s=split(error="ignore"), g=gather()))

    life.fail("s")

    assert life.skipped == ["x@/"]
    assert life.token("g").items == 0
    assert life.token("g").error == Ref("result", life.plan.index["s"])


def test_a_split_that_branches_kills_its_items_and_its_aggregator() -> None:
    life = Life(plan("start -> s -> x -> g -> y, s -!-> e", s=split(error="branch"), g=gather()))

    life.fail("s")

    assert life.queue == {"e@/"}
    assert life.skipped == ["x@/", "g@/", "y@/"]


def test_a_split_that_is_skipped_takes_its_aggregator_along() -> None:
    chains = "start -> if -true-> a -> m, if -false-> s -> x -> g -> m, s -> y -> g"
    life = Life(plan(chains, **{"if": choose()}, s=split(), g=gather()))

    life.ok("if", outlet="true")

    assert life.skipped == ["s@/", "x@/", "y@/", "g@/"]
    life.ok("a")
    assert life.queue == {"m@/"}


def test_a_skipped_race_inside_the_items_of_a_skipped_split_needs_no_row() -> None:
    chains = "start -> if -true-> a, if -false-> s -> x -> m, s -> y -> m, m -> g"
    life = Life(plan(chains, **{"if": choose()}, s=split(), m=race({"timeout": 3}), g=gather()))

    life.ok("if", outlet="true")

    assert set(life.skipped) == {"s@/", "x@/", "y@/", "m@/", "g@/"}


def test_a_failure_travels_along_dead_edges_until_a_join_runs() -> None:
    life = Life(plan("start -> s -> x -> y -> g, s -> z -> m, y -> m, m -> g", s=split(), g=gather()))
    life.fan("s", 1)

    decision = step(life.plan, life.token("x@/s:0"), Failure(Error("E", "no")), NOW)

    cause = Ref("result", life.plan.index["x"], life.token("x@/s:0").path)
    assert [each.mark for each in decision.effects if isinstance(each, CollectItem)] == [3]
    assert [(each.alive, each.error) for each in decision.effects if isinstance(each, ArriveAtJoin)] == [
        (False, cause)
    ]


def test_a_join_skipped_at_once_passes_on_its_first_error_in_edge_order() -> None:
    p = plan("start -> s -> x, x -> a -> m, x -> b -> m, m -> n -> g", s=split(), g=gather())
    cause = Ref("result", p.index["x"], (1, 0))

    decision = skip(p, p.index["x"], (1, 0), cause, NOW)

    assert skipped(p, decision) == ["a", "b", "m", "n"]
    assert [each.mark for each in decision.effects if isinstance(each, CollectItem)] == [3]


def test_the_cancelled_and_the_skipped_kill_all_their_edges() -> None:
    p = plan("start -> s -> x -> g, x -!-> e -> g", s=split(), x=node(error="branch"), g=gather())
    node_index, path = p.index["x"], (p.index["s"], 0)
    earlier = Ref("result", p.index["s"])

    cancelled = decision_for_fact(p, NodeResult(node_index, path, NOW, "cancelled"))
    dead = decision_for_fact(p, NodeResult(node_index, path, NOW, "skipped", error=earlier))

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
def test_only_a_result_routes(fact: TokenFact) -> None:
    assert decision_for_fact(plan("start -> x -> y"), fact).effects == ()


def test_an_empty_list_skips_the_body_and_runs_the_aggregator() -> None:
    life = Life(
        plan("start -> s -> x -> t -> y -> h -> g -> z", s=split(), t=split(), h=gather(), g=gather())
    )

    life.fan("s", 0)

    assert life.skipped == ["x@/", "t@/", "y@/", "h@/"]
    assert life.queue == {"g@/"}
    assert life.token("g").payload == START
    life.ok("g", value=[])
    assert life.queue == {"z@/"}


def test_the_plan_knows_the_edges_of_each_outlet() -> None:
    p = plan("start -> if -true-> a, if -false-> b, if -true-> c", **{"if": choose()})

    assert {
        outlet: (edge_names(p, alive), edge_names(p, dead))
        for outlet, (alive, dead) in at(p, "if").by_outlet.items()
    } == {"true": (["if-a", "if-c"], ["if-b"]), "false": (["if-b"], ["if-a", "if-c"])}
