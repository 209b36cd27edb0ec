"""Results that a token can read: all ancestors, and behind a race only the ancestors of the winner."""

from __future__ import annotations

import pytest

from rune.core.execution.scope import reference, result_ref, visible
from rune.core.execution.token import START, Ref, Token
from tests.support.plans import (
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


def visible_nodes(execution: ExecutionDriver, name: str) -> set[str] | None:
    found = visible(execution.plan, execution.token(name), execution.lookup)
    return None if found is None else {execution.plan.ids[each] for each in found}


@pytest.mark.parametrize(
    ("root", "ref"),
    [
        ("$trigger", START),
        ("$input", START),
        ("$json", Ref("result", 5, (1, 2))),
        ("$error", Ref("result", 6, (1, 2))),
        ("$item", Ref("item", 1, (1, 2))),
        ("$start", START),
        ("$s", Ref("result", 1)),
        ("$x", Ref("result", 2, (1, 2))),
        ("$unknown", None),
        ("$execution", None),
    ],
)
def test_reference_of_root(root: str, ref: Ref | None) -> None:
    p = plan("start -> s -> x -> y -> g", s=split(), g=aggregator())
    token = Token(p.index["y"], (1, 2), Ref("result", 5, (1, 2)), Ref("result", 6, (1, 2)))

    assert reference(p, token, root) == ref


def test_item_and_error_have_no_reference_outside_split() -> None:
    p = plan("start -> a")

    assert reference(p, Token(1), "$item") is None
    assert reference(p, Token(1), "$error") is None


def test_result_ref_uses_scope_of_node() -> None:
    p = plan("start -> a -> s -> x -> t -> y", s=split(), t=split())
    path = (p.index["s"], 3, p.index["t"], 4)

    assert result_ref(p, p.index["a"], path) == Ref("result", p.index["a"], ())
    assert result_ref(p, p.index["x"], path) == Ref("result", p.index["x"], path[:2])
    assert result_ref(p, p.index["y"], path) == Ref("result", p.index["y"], path)


def test_all_ancestors_are_visible_without_race() -> None:
    execution = ExecutionDriver(plan("start -> a -> m, start -> b -> m, m -> z", m=merge()))
    execution.ok("a", "b", "m")

    assert visible_nodes(execution, "z") is None


@pytest.mark.parametrize(("winner", "loser"), [("a", "b"), ("b", "a")])
@pytest.mark.parametrize("kind", [race(), node(join="any")])
def test_ended_race_loser_is_not_visible(winner: str, loser: str, kind: dict[str, object]) -> None:
    execution = ExecutionDriver(plan("start -> a -> m, start -> b -> m, m -> z", m=kind))
    execution.ok(winner)
    assert visible_nodes(execution, "m") == {"start", winner}
    execution.ok(loser)
    execution.ok("m")

    assert visible_nodes(execution, "z") == {"start", winner, "m"}


def test_at_least_join_shows_the_arrivals_that_opened_it() -> None:
    execution = ExecutionDriver(
        plan("start -> a -> m, start -> b -> m, start -> c -> m, m -> z", m=quorum(2))
    )
    execution.ok("c", "a", "b", "m")

    assert visible_nodes(execution, "z") == {"start", "a", "c", "m"}


def test_race_loser_is_visible_over_another_path() -> None:
    execution = ExecutionDriver(plan("start -> a -> m, start -> b -> m, m -> z, b -> z", m=race()))
    execution.ok("a", "m", "b")

    assert visible_nodes(execution, "z") == {"start", "a", "m", "b"}


def test_skipped_race_shows_all_its_predecessors() -> None:
    chains = "start -> i -true-> a -> z, i -false-> b -> m, i -false-> c -> m, m -> z"
    execution = ExecutionDriver(plan(chains, i=conditional(), m=race()))
    execution.ok("i", outlet="true")
    execution.ok("a")

    assert visible_nodes(execution, "z") == {"start", "i", "a", "b", "c", "m"}


def test_race_skipped_by_fact_shows_all_its_predecessors() -> None:
    chains = "start -> i -true-> a -> z, i -false-> b -> m, start -> k -true-> c -> m, k -false-> d, m -> z"
    execution = ExecutionDriver(plan(chains, i=conditional(), k=conditional(), m=race({"timeout": 5})))
    execution.ok("i", outlet="true")
    execution.ok("k", outlet="false")
    execution.ok("a")

    assert execution.result("m").status == "skipped"
    assert visible_nodes(execution, "z") == {"start", "i", "k", "a", "b", "c", "m"}


def test_timed_out_race_shows_no_predecessors() -> None:
    execution = ExecutionDriver(
        plan("start -> a -> m, start -> b -> m, m -> z", m=race({"timeout": 5}, error="ignore"))
    )
    execution.fire("join", "m")

    assert visible_nodes(execution, "z") == {"m"}


def test_race_before_split_limits_items_and_nodes_after_aggregator() -> None:
    chains = "start -> a -> m, start -> b -> m, m -> s -> x -> g -> z"
    execution = ExecutionDriver(plan(chains, m=race(), s=split(), g=aggregator()))
    execution.ok("b", "m")
    execution.fan_out("s", 1)
    assert visible_nodes(execution, "x@/s:0") == {"start", "b", "m", "s"}
    execution.ok("x@/s:0", "g")

    assert visible_nodes(execution, "z") == {"start", "b", "m", "s", "g"}


def test_race_inside_item_is_decided_per_item() -> None:
    chains = "start -> s -> a -> m, s -> b -> m, m -> x -> g -> z"
    execution = ExecutionDriver(plan(chains, m=race(), s=split(), g=aggregator()))
    execution.fan_out("s", 2)
    execution.ok("a@/s:0", "b@/s:1", "m@/s:0", "m@/s:1")

    assert visible_nodes(execution, "x@/s:0") == {"start", "s", "a", "m"}
    assert visible_nodes(execution, "x@/s:1") == {"start", "s", "b", "m"}
    execution.ok("b@/s:0", "a@/s:1", "x@/s:0", "x@/s:1", "g")
    assert visible_nodes(execution, "z") is None
