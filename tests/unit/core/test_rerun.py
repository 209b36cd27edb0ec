"""Reruns: the results that are kept, and the tokens that run again."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from rune.core.execution.fact import ExecutionEnded, ExecutionStarted, Fact, NodeResult
from rune.core.execution.fold import fold
from rune.core.execution.rerun import (
    Key,
    failed_items,
    from_node,
    kept_results,
    unfinished,
    untolerated_items,
)
from tests.support.plans import NOW, ExecutionDriver, aggregator, conditional, merge, node, plan, race, split

LATER = NOW + 86_400_000


def rerun(execution: ExecutionDriver, tokens: set[Key]) -> tuple[set[str], set[str]]:
    """The names of the kept results, and of the tokens that the rerun emits first."""
    kept = kept_results(execution.plan, execution.facts, tokens, LATER)
    _, applied = fold(execution.plan, [ExecutionStarted(LATER), *kept], LATER)
    names = {execution.name(each.node, each.path) for each in kept if isinstance(each, NodeResult)}
    assert len(names) == len(kept)
    return names, {execution.name(*token.key) for token in applied.emitted}


def test_retry_starts_at_failed_node() -> None:
    execution = ExecutionDriver(plan("start -> a -> b -> c"))
    execution.ok("a")
    execution.fail("b")

    assert rerun(execution, unfinished(execution.plan, execution.facts)) == ({"a@/"}, {"b@/"})


def test_retry_runs_nodes_without_result() -> None:
    execution = ExecutionDriver(plan("start -> a -> b, start -> c"))
    execution.ok("a")
    execution.facts.append(ExecutionEnded(NOW, "cancelled"))

    assert rerun(execution, unfinished(execution.plan, execution.facts)) == ({"a@/"}, {"b@/", "c@/"})


def test_failed_items_reruns_only_failed_items() -> None:
    execution = ExecutionDriver(plan("start -> s -> x -> y -> g -> z", s=split(), g=aggregator()))
    execution.fan_out("s", 3)
    execution.ok("x@/s:0", "x@/s:1", "x@/s:2")
    execution.ok("y@/s:0", "y@/s:2")
    execution.fail("y@/s:1")
    execution.ok("g", "z")

    kept, emitted = rerun(execution, failed_items(execution.plan, execution.facts))

    assert emitted == {"y@/s:1"}
    assert kept == {"s@/", "x@/s:0", "x@/s:1", "x@/s:2", "y@/s:0", "y@/s:2"}


def test_failed_items_may_be_limited_to_a_split_a_scope_and_a_code() -> None:
    execution = ExecutionDriver(
        plan("start -> s -> x -> g -> t -> y -> h", s=split(), g=aggregator(), t=split(), h=aggregator())
    )
    execution.fan_out("s", 3)
    execution.ok("x@/s:0")
    execution.fail("x@/s:1", code="LATE")
    execution.fail("x@/s:2")
    execution.ok("g")
    execution.fan_out("t", 1)
    execution.fail("y@/t:0", code="LATE")
    execution.ok("h")
    index = execution.plan.index

    def found(**limits: Any) -> set[str]:
        return {execution.name(*key) for key in failed_items(execution.plan, execution.facts, **limits)}

    assert untolerated_items(execution.plan, execution.facts) == 3
    assert found() == {"x@/s:1", "x@/s:2", "y@/t:0"}
    assert found(split=index["s"]) == {"x@/s:1", "x@/s:2"}
    assert found(split=index["s"], code="LATE") == {"x@/s:1"}
    assert found(code="LATE") == {"x@/s:1", "y@/t:0"}
    assert found(inside=(index["s"], 2)) == {"x@/s:2"}


def test_failed_items_leaves_out_handled_failures() -> None:
    execution = ExecutionDriver(
        plan("start -> s -> x -> g", s=split(), x=node(error="ignore"), g=aggregator())
    )
    execution.fan_out("s", 2)
    execution.fail("x@/s:0")
    execution.ok("x@/s:1", "g")

    assert failed_items(execution.plan, execution.facts) == set()
    assert unfinished(execution.plan, execution.facts) == {
        (execution.plan.index["x"], (execution.plan.index["s"], 0))
    }


def test_failed_items_needs_an_aggregator() -> None:
    execution = ExecutionDriver(plan("start -> s -> x", s=split()))
    execution.fan_out("s", 1)
    execution.fail("x@/s:0")

    assert failed_items(execution.plan, execution.facts) == set()


def test_from_node_reruns_its_descendants() -> None:
    execution = ExecutionDriver(plan("start -> a -> b -> d, a -> c -> d", d=merge()))
    execution.ok("a", "b", "c", "d")

    assert rerun(execution, from_node(execution.plan, execution.facts, execution.plan.index["b"])) == (
        {"a@/", "c@/"},
        {"b@/"},
    )


def test_from_node_in_one_item_keeps_other_items() -> None:
    execution = ExecutionDriver(plan("start -> s -> x -> y -> g -> z", s=split(), g=aggregator()))
    execution.fan_out("s", 2)
    execution.ok("x@/s:0", "x@/s:1", "y@/s:0", "y@/s:1", "g", "z")
    inside = (execution.plan.index["s"], 1)

    kept, emitted = rerun(
        execution, from_node(execution.plan, execution.facts, execution.plan.index["x"], inside)
    )

    assert (kept, emitted) == ({"s@/", "x@/s:0", "y@/s:0"}, {"x@/s:1"})


def test_from_split_reruns_all_items() -> None:
    execution = ExecutionDriver(plan("start -> a -> s -> x -> g, a -> b", s=split(), g=aggregator()))
    execution.ok("a", "b")
    execution.fan_out("s", 2)
    execution.ok("x@/s:0", "x@/s:1", "g")

    assert rerun(execution, from_node(execution.plan, execution.facts, execution.plan.index["s"])) == (
        {"a@/", "b@/"},
        {"s@/"},
    )


def test_from_empty_split_reruns_aggregator() -> None:
    execution = ExecutionDriver(plan("start -> s -> x -> g", s=split(), g=aggregator()))
    execution.fan_out("s", 0)
    execution.ok("g")

    assert rerun(execution, from_node(execution.plan, execution.facts, execution.plan.index["s"])) == (
        set(),
        {"s@/"},
    )


def test_from_node_also_reruns_halted_node() -> None:
    execution = ExecutionDriver(plan("start -> a, start -> b"))
    execution.ok("a")
    execution.fail("b")

    assert rerun(execution, from_node(execution.plan, execution.facts, execution.plan.index["a"])) == (
        set(),
        {"a@/", "b@/"},
    )


def test_from_node_without_result_is_empty() -> None:
    execution = ExecutionDriver(plan("start -> a -> b"))
    execution.ok("a")

    assert from_node(execution.plan, execution.facts, execution.plan.index["b"]) == set()


def test_race_result_depends_only_on_winner() -> None:
    execution = ExecutionDriver(plan("start -> a -> m, start -> b -> m, m -> z", m=race()))
    execution.ok("a", "m", "z")
    execution.fail("b")

    kept, emitted = rerun(execution, unfinished(execution.plan, execution.facts))
    assert (kept, emitted) == ({"a@/", "m@/", "z@/"}, {"b@/"})

    kept, _ = rerun(execution, {(execution.plan.index["a"], ())})
    assert kept == {"b@/"}


def test_skips_after_rerun_node_are_dropped() -> None:
    execution = ExecutionDriver(
        plan("start -> i -true-> a -> m, i -false-> b -> m, m -> z", i=conditional(), m=merge())
    )
    execution.ok("i", outlet="true")
    execution.ok("a", "m", "z")

    kept, emitted = rerun(execution, from_node(execution.plan, execution.facts, execution.plan.index["i"]))

    assert (kept, emitted) == (set(), {"i@/"})


def test_join_timeout_counts_from_rerun_start() -> None:
    execution = ExecutionDriver(plan("start -> a -> m, start -> b -> m", m=merge(parameters={"timeout": 60})))
    execution.ok("a")
    execution.fail("b")

    kept = kept_results(execution.plan, execution.facts, unfinished(execution.plan, execution.facts), LATER)
    _, applied = fold(execution.plan, [ExecutionStarted(LATER), *kept], LATER)

    assert {timer.kind: due for timer, due in applied.armed} == {"join": LATER + 60_000}


@given(st.data())
def test_kept_results_never_depend_on_rerun_tokens(data: st.DataObject) -> None:
    """The fold of the kept results emits only chosen tokens, and no kept result belongs to an emitted token."""
    execution = ExecutionDriver(
        plan("start -> s -> x -> y -> g -> z, x -> w -> g", s=split(), g=aggregator())
    )
    execution.fan_out("s", 3)
    while execution.queue:
        name = data.draw(st.sampled_from(sorted(execution.queue)))
        if name.startswith("y") and data.draw(st.booleans()):
            execution.fail(name)
        else:
            execution.ok(name)
    results: list[Fact] = list(execution.results())
    chosen = data.draw(st.sets(st.sampled_from([(each.node, each.path) for each in execution.results()])))

    kept = kept_results(execution.plan, results, chosen, LATER)
    state, applied = fold(execution.plan, [ExecutionStarted(LATER), *kept], LATER)

    emitted = {token.key for token in applied.emitted}
    assert {(each.node, each.path) for each in kept if isinstance(each, NodeResult)}.isdisjoint(emitted)
    assert emitted <= chosen or not chosen
    assert bool(emitted) == bool(chosen)
    assert (state.finish is None) == bool(chosen)
