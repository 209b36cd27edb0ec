"""What a token may see: everything before it, but behind a race only what led to the winner."""

from __future__ import annotations

import pytest

from rune.core.execution.token import START, Ref, Token
from rune.core.execution.scope import reference, result_ref, visible
from tests.unit.core.plans import Life, choose, gather, merge, most, node, plan, race, split


def seen(life: Life, name: str) -> set[str] | None:
    found = visible(life.plan, life.token(name), life.lookup)
    return None if found is None else {life.plan.ids[each] for each in found}


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
        ("$nobody", None),
        ("$execution", None),
    ],
)
def test_where_the_value_of_a_root_lives(root: str, ref: Ref | None) -> None:
    p = plan("start -> s -> x -> y -> g", s=split(), g=gather())
    token = Token(p.index["y"], (1, 2), Ref("result", 5, (1, 2)), Ref("result", 6, (1, 2)))

    assert reference(p, token, root) == ref


def test_there_is_no_item_outside_a_split() -> None:
    p = plan("start -> a")

    assert reference(p, Token(1), "$item") is None
    assert reference(p, Token(1), "$error") is None


def test_a_result_lives_in_the_scope_of_its_node() -> None:
    p = plan("start -> a -> s -> x -> t -> y", s=split(), t=split())
    path = (p.index["s"], 3, p.index["t"], 4)

    assert result_ref(p, p.index["a"], path) == Ref("result", p.index["a"], ())
    assert result_ref(p, p.index["x"], path) == Ref("result", p.index["x"], path[:2])
    assert result_ref(p, p.index["y"], path) == Ref("result", p.index["y"], path)


def test_without_a_race_every_ancestor_counts() -> None:
    life = Life(plan("start -> a -> m, start -> b -> m, m -> z", m=merge()))
    life.ok("a", "b", "m")

    assert seen(life, "z") is None


@pytest.mark.parametrize(("winner", "loser"), [("a", "b"), ("b", "a")])
@pytest.mark.parametrize("kind", [race(), node(join="any")])
def test_behind_a_race_the_loser_is_not_visible_even_when_it_has_ended(
    winner: str, loser: str, kind: dict[str, object]
) -> None:
    life = Life(plan("start -> a -> m, start -> b -> m, m -> z", m=kind))
    life.ok(winner)
    assert seen(life, "m") == {"start", winner}
    life.ok(loser)
    life.ok("m")

    assert seen(life, "z") == {"start", winner, "m"}


def test_at_least_shows_those_that_opened_it() -> None:
    life = Life(plan("start -> a -> m, start -> b -> m, start -> c -> m, m -> z", m=most(2)))
    life.ok("c", "a", "b", "m")

    assert seen(life, "z") == {"start", "a", "c", "m"}


def test_some_other_path_makes_a_loser_visible() -> None:
    life = Life(plan("start -> a -> m, start -> b -> m, m -> z, b -> z", m=race()))
    life.ok("a", "m", "b")

    assert seen(life, "z") == {"start", "a", "m", "b"}


def test_a_skipped_race_is_passed_by_any_of_its_parties() -> None:
    chains = "start -> i -true-> a -> z, i -false-> b -> m, i -false-> c -> m, m -> z"
    life = Life(plan(chains, i=choose(), m=race()))
    life.ok("i", outlet="true")
    life.ok("a")

    assert seen(life, "z") == {"start", "i", "a", "b", "c", "m"}


def test_a_race_skipped_with_a_row_counts_as_skipped() -> None:
    chains = "start -> i -true-> a -> z, i -false-> b -> m, start -> k -true-> c -> m, k -false-> d, m -> z"
    life = Life(plan(chains, i=choose(), k=choose(), m=race({"timeout": 5})))
    life.ok("i", outlet="true")
    life.ok("k", outlet="false")
    life.ok("a")

    assert life.result("m").status == "skipped"
    assert seen(life, "z") == {"start", "i", "k", "a", "b", "c", "m"}


def test_a_race_that_timed_out_shows_nobody() -> None:
    life = Life(plan("start -> a -> m, start -> b -> m, m -> z", m=race({"timeout": 5}, error="ignore")))
    life.fire("join", "m")

    assert seen(life, "z") == {"m"}


def test_what_raced_before_a_split_is_seen_from_its_items_and_behind_its_aggregator() -> None:
    chains = "start -> a -> m, start -> b -> m, m -> s -> x -> g -> z"
    life = Life(plan(chains, m=race(), s=split(), g=gather()))
    life.ok("b", "m")
    life.fan("s", 1)
    assert seen(life, "x@/s:0") == {"start", "b", "m", "s"}
    life.ok("x@/s:0", "g")

    assert seen(life, "z") == {"start", "b", "m", "s", "g"}


def test_a_race_inside_an_item_belongs_to_that_item() -> None:
    chains = "start -> s -> a -> m, s -> b -> m, m -> x -> g -> z"
    life = Life(plan(chains, m=race(), s=split(), g=gather()))
    life.fan("s", 2)
    life.ok("a@/s:0", "b@/s:1", "m@/s:0", "m@/s:1")

    assert seen(life, "x@/s:0") == {"start", "s", "a", "m"}
    assert seen(life, "x@/s:1") == {"start", "s", "b", "m"}
    life.ok("b@/s:0", "a@/s:1", "x@/s:0", "x@/s:1", "g")
    assert seen(life, "z") is None
