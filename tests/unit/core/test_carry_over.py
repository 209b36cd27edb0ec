"""Results of an execution that a rerun with another definition keeps, and the tokens that run again."""

from __future__ import annotations

from typing import Any

from rune.core.execution.fact import ExecutionEnded, ExecutionStarted, Fact, NodeResult
from rune.core.execution.fold import fold
from rune.core.execution.rerun import MoveRef, carry_over, from_node, kept_results
from rune.core.execution.token import START, Ref
from rune.core.plan.model import Plan
from tests.support.plans import (
    NOW,
    ExecutionDriver,
    aggregator,
    conditional,
    merge,
    node,
    plan,
    race,
    split,
)

LATER = NOW + 86_400_000


def move(value: object, move_ref: MoveRef) -> object:
    return move_ref(value) if isinstance(value, Ref) else value


def rerun(execution: ExecutionDriver, new: Plan, start: str) -> tuple[set[str], set[str]]:
    """The names of the kept results, and of the tokens that a rerun of another plan emits first."""
    carried = carry_over(execution.plan, new, execution.facts, move)
    again = carried.rerouted | from_node(new, carried.results, new.index[start])
    kept: list[Fact] = kept_results(new, carried.results, again, LATER, carried.changed | {new.index[start]})
    _, applied = fold(new, [ExecutionStarted(LATER), *kept], LATER)
    named = ExecutionDriver(new)
    names = {named.name(each.node, each.path) for each in kept if isinstance(each, NodeResult)}
    return names, {named.name(*token.key) for token in applied.emitted}


def test_nodes_before_the_start_keep_their_results() -> None:
    execution = ExecutionDriver(plan("start -> a -> b -> c"))
    execution.ok("a", "b", "c")
    execution.facts.append(ExecutionEnded(NOW, "completed"))

    # The new plan has its nodes in another order.
    assert rerun(execution, plan("start -> z, start -> a -> b -> c"), "c") == ({"a@/", "b@/"}, {"c@/", "z@/"})


def test_new_node_runs_with_everything_behind_it() -> None:
    execution = ExecutionDriver(plan("start -> a -> b -> c"))
    execution.ok("a", "b", "c")

    assert rerun(execution, plan("start -> a -> x -> b -> c"), "c") == ({"a@/"}, {"x@/"})
    assert rerun(execution, plan("start -> a -> b -> x -> c"), "x") == ({"a@/", "b@/"}, {"x@/"})


def test_node_of_another_type_runs_again() -> None:
    execution = ExecutionDriver(plan("start -> a -> b -> c"))
    execution.ok("a", "b", "c")

    assert rerun(execution, plan("start -> a -> b -> c", b="act"), "c") == ({"a@/"}, {"b@/"})


def test_other_parameters_do_not_make_a_node_run_again() -> None:
    execution = ExecutionDriver(plan("start -> a -> b", a=node("noop")))
    execution.ok("a", "b")

    assert rerun(execution, plan("start -> a -> b", a=node("noop", name="other", timeout=5)), "b") == (
        {"a@/"},
        {"b@/"},
    )


def test_removed_node_makes_the_nodes_behind_it_run_again() -> None:
    execution = ExecutionDriver(plan("start -> a -> b -> c, start -> d"))
    execution.ok("a", "b", "c", "d")

    assert rerun(execution, plan("start -> a -> c, start -> d"), "c") == ({"a@/", "d@/"}, {"c@/"})


def test_pinned_node_runs_again() -> None:
    execution = ExecutionDriver(plan("start -> a -> b -> c"))
    execution.ok("a", "b", "c")

    assert rerun(execution, plan("start -> a -> b -> c", b=node(pin={"output": 1})), "c") == (
        {"a@/"},
        {"b@/"},
    )


def test_kept_result_of_a_pinned_node_is_marked() -> None:
    execution = ExecutionDriver(plan("start -> a -> b", a=node(pin={"output": 1})))
    execution.ok("a", "b")
    index = execution.plan.index

    def pinned(facts: list[Fact], p: Plan) -> list[bool]:
        kept = kept_results(p, facts, from_node(p, facts, p.index["b"]), LATER)
        return [each.pinned for each in kept if isinstance(each, NodeResult)]

    assert pinned(execution.facts, execution.plan) == [True]
    once = kept_results(execution.plan, execution.facts, {(index["b"], ())}, LATER)
    assert pinned(once, execution.plan) == [True]
    assert pinned(execution.facts, plan("start -> a -> b")) == [False]


def test_items_are_carried_over_with_their_split() -> None:
    old = plan("start -> s -> x -> y -> g -> z", s=split(), g=aggregator())
    execution = ExecutionDriver(old)
    execution.fan_out("s", 2)
    execution.ok("x@/s:0", "x@/s:1", "y@/s:0", "y@/s:1", "g", "z")
    new = plan("start -> first, start -> s -> x -> y -> g -> z", s=split(), g=aggregator())

    kept, emitted = rerun(execution, new, "y")

    assert kept == {"s@/", "x@/s:0", "x@/s:1"}
    assert emitted == {"y@/s:0", "y@/s:1", "first@/"}


def test_changed_node_inside_a_split_runs_in_every_item() -> None:
    old = plan("start -> s -> x -> g -> z", s=split(), g=aggregator())
    execution = ExecutionDriver(old)
    execution.fan_out("s", 2)
    execution.ok("x@/s:0", "x@/s:1", "g", "z")
    new = plan("start -> s -> x -> g -> z", s=split(), x="act", g=aggregator())

    assert rerun(execution, new, "z") == ({"s@/"}, {"x@/s:0", "x@/s:1"})


def test_changed_split_inside_a_split_runs_its_outer_items_again() -> None:
    chains = "start -> o -> s -> x -> h -> g"
    old = plan(chains, o=split(), s=split(), h=aggregator(), g=aggregator())
    execution = ExecutionDriver(old)
    execution.fan_out("o", 1)
    execution.fan_out("s@/o:0", 1)
    execution.ok("x@/o:0/s:0", "h@/o:0", "g")
    pinned = split(pin={"output": [1, 2]})
    new = plan(chains, o=split(), s=pinned, h=aggregator(), g=aggregator())

    assert rerun(execution, new, "g") == ({"o@/"}, {"s@/o:0"})


def test_join_that_opens_otherwise_runs_again() -> None:
    chains = "start -> a -> m -> z, start -> b -> m"
    execution = ExecutionDriver(plan(chains, m=merge()))
    execution.ok("a", "b", "m", "z")

    assert rerun(execution, plan(chains, m=race()), "z") == ({"a@/", "b@/"}, {"m@/"})


def test_join_keeps_its_arrivals() -> None:
    execution = ExecutionDriver(plan("start -> a -> m -> z, start -> b -> m", m=merge()))
    execution.ok("a", "b", "m", "z")
    new = plan("start -> c, start -> a -> m -> z, start -> b -> m", m=merge())

    carried = carry_over(execution.plan, new, execution.facts, move)

    joined = next(each for each in carried.results if each.node == new.index["m"])
    assert [new.definition.edges[each.edge].src for each in joined.arrived] == ["a", "b"]
    assert [each.payload.node for each in joined.arrived] == [new.index["a"], new.index["b"]]


def test_references_are_moved_or_lost_with_their_node() -> None:
    execution = ExecutionDriver(plan("start -> a -> c -true-> b", c=conditional()))
    execution.ok("a")
    execution.ok("c", outlet="true")
    new = plan("start -> z, start -> a -> c -true-> b", c=conditional())
    before = execution.plan.index

    passed = next(each for each in execution.facts if isinstance(each, NodeResult) and each.payload)
    facts: list[Fact] = [
        NodeResult(before["a"], (), NOW, "ok", value=START, error=Ref("result", before["c"])),
        passed,
    ]
    carried = carry_over(execution.plan, new, facts, move)

    assert next((each.value, each.error) for each in carried.results) == (
        START,
        Ref("result", new.index["c"]),
    )
    assert carried.results[1].payload == Ref("result", new.index["a"])
    other = plan("start -> z -> a, start -> c -true-> b", c=conditional())
    assert carry_over(execution.plan, other, facts, move).results == []


def rerouted(execution: ExecutionDriver, new: Plan) -> set[str]:
    found = carry_over(execution.plan, new, execution.facts, move).rerouted
    return {ExecutionDriver(new).name(*each) for each in found}


def test_node_whose_outlet_leads_elsewhere_runs_again() -> None:
    def routed(*edges: str, rules: int = 2) -> dict[str, Any]:
        rule = {"value": 1, "operator": "==", "compare": 2}
        return node("switch", {"rules": [rule] * rules, "routes": list(edges)})

    chains = "start -> c -> x, c -> y, c -> z"
    execution = ExecutionDriver(plan(chains, c=routed("c-x", "c-y", "c-z")))
    execution.ok("c", outlet="case_1")

    assert rerouted(execution, plan(f"{chains}, c -case_1-> w", c=routed("c-x", "c-y", "c-z"))) == set()
    assert rerouted(execution, plan(chains, c=routed("c-y", "c-x", "c-z"))) == {"c@/"}
    assert rerouted(execution, plan("start -> c -> x, c -> z", c=routed("c-x", "c-z", rules=1))) == {"c@/"}


def test_failure_that_is_handled_otherwise_runs_again() -> None:
    execution = ExecutionDriver(plan("start -> a -> b", a=node(error="ignore")))
    execution.fail("a")

    assert rerouted(execution, plan("start -> a -> b", a=node(error="ignore"))) == set()
    assert rerouted(execution, plan("start -> a -> b")) == {"a@/"}


def test_failure_whose_error_edge_moves_runs_again() -> None:
    execution = ExecutionDriver(plan("start -> a -!-> b, a -!-> c", a=node(error="branch")))
    execution.fail("a")
    to_c = node(error={"type": "branch", "error_edge": "a-c"})

    assert rerouted(execution, plan("start -> a -!-> b, a -!-> c", a=to_c)) == {"a@/"}


def test_parallel_edges_are_told_apart() -> None:
    execution = ExecutionDriver(plan("start -> a -> m, a -> m", m=merge()))
    execution.ok("a", "m")

    assert rerun(execution, plan("start -> a -> m, a -> m, start -> b", m=merge()), "b") == (
        {"a@/", "m@/"},
        {"b@/"},
    )
