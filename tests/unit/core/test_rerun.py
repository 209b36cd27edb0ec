"""What an execution that runs again begins with, and what it therefore does anew."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rune.core.execution.fact import ExecutionEnded, ExecutionStarted, Fact, NodeResult
from rune.core.execution.fold import fold
from rune.core.execution.rerun import Key, failed_items, from_node, kept_results, unfinished
from tests.unit.core.plans import NOW, Life, choose, gather, merge, node, plan, race, split

LATER = NOW + 86_400_000


def again(life: Life, tokens: set[Key]) -> tuple[set[str], set[str]]:
    """The names of what is kept, and of what is then sent first."""
    rows = kept_results(life.plan, life.facts, tokens, LATER)
    _, applied = fold(life.plan, [ExecutionStarted(LATER), *rows], LATER)
    names = {life.name(each.node, each.path) for each in rows if isinstance(each, NodeResult)}
    assert len(names) == len(rows)
    return names, {life.name(*token.key) for token in applied.emitted}


def test_a_retry_begins_at_what_failed() -> None:
    life = Life(plan("start -> a -> b -> c"))
    life.ok("a")
    life.fail("b")

    assert again(life, unfinished(life.plan, life.facts)) == ({"a@/"}, {"b@/"})


def test_a_retry_runs_what_never_ended() -> None:
    life = Life(plan("start -> a -> b, start -> c"))
    life.ok("a")
    life.facts.append(ExecutionEnded(NOW, "cancelled"))

    assert again(life, unfinished(life.plan, life.facts)) == ({"a@/"}, {"b@/", "c@/"})


def test_of_a_split_only_the_items_that_failed_run_again() -> None:
    life = Life(plan("start -> s -> x -> y -> g -> z", s=split(), g=gather()))
    life.fan("s", 3)
    life.ok("x@/s:0", "x@/s:1", "x@/s:2")
    life.ok("y@/s:0", "y@/s:2")
    life.fail("y@/s:1")
    life.ok("g", "z")

    rows, sent = again(life, failed_items(life.plan, life.facts))

    assert sent == {"y@/s:1"}
    assert rows == {"s@/", "x@/s:0", "x@/s:1", "x@/s:2", "y@/s:0", "y@/s:2"}


def test_an_item_whose_failure_was_handled_is_no_failed_item() -> None:
    life = Life(plan("start -> s -> x -> g", s=split(), x=node(error="ignore"), g=gather()))
    life.fan("s", 2)
    life.fail("x@/s:0")
    life.ok("x@/s:1", "g")

    assert failed_items(life.plan, life.facts) == set()
    assert unfinished(life.plan, life.facts) == {(life.plan.index["x"], (life.plan.index["s"], 0))}


def test_the_items_of_a_split_without_a_list_are_no_entries() -> None:
    life = Life(plan("start -> s -> x", s=split()))
    life.fan("s", 1)
    life.fail("x@/s:0")

    assert failed_items(life.plan, life.facts) == set()


def test_from_a_node_everything_behind_it_runs_again() -> None:
    life = Life(plan("start -> a -> b -> d, a -> c -> d", d=merge()))
    life.ok("a", "b", "c", "d")

    assert again(life, from_node(life.plan, life.facts, life.plan.index["b"])) == ({"a@/", "c@/"}, {"b@/"})


def test_from_a_node_in_one_item() -> None:
    life = Life(plan("start -> s -> x -> y -> g -> z", s=split(), g=gather()))
    life.fan("s", 2)
    life.ok("x@/s:0", "x@/s:1", "y@/s:0", "y@/s:1", "g", "z")
    inside = (life.plan.index["s"], 1)

    rows, sent = again(life, from_node(life.plan, life.facts, life.plan.index["x"], inside))

    assert (rows, sent) == ({"s@/", "x@/s:0", "y@/s:0"}, {"x@/s:1"})


def test_from_a_split_all_its_items_go() -> None:
    life = Life(plan("start -> a -> s -> x -> g, a -> b", s=split(), g=gather()))
    life.ok("a", "b")
    life.fan("s", 2)
    life.ok("x@/s:0", "x@/s:1", "g")

    assert again(life, from_node(life.plan, life.facts, life.plan.index["s"])) == ({"a@/", "b@/"}, {"s@/"})


def test_from_an_empty_split_its_aggregator_goes_too() -> None:
    life = Life(plan("start -> s -> x -> g", s=split(), g=gather()))
    life.fan("s", 0)
    life.ok("g")

    assert again(life, from_node(life.plan, life.facts, life.plan.index["s"])) == (set(), {"s@/"})


def test_what_halted_it_runs_again_wherever_it_is_rerun_from() -> None:
    life = Life(plan("start -> a, start -> b"))
    life.ok("a")
    life.fail("b")

    assert again(life, from_node(life.plan, life.facts, life.plan.index["a"])) == (set(), {"a@/", "b@/"})


def test_a_node_that_never_ran_gives_nothing_to_run() -> None:
    life = Life(plan("start -> a -> b"))
    life.ok("a")

    assert from_node(life.plan, life.facts, life.plan.index["b"]) == set()


def test_a_race_stands_on_its_winner_alone() -> None:
    life = Life(plan("start -> a -> m, start -> b -> m, m -> z", m=race()))
    life.ok("a", "m", "z")
    life.fail("b")

    rows, sent = again(life, unfinished(life.plan, life.facts))
    assert (rows, sent) == ({"a@/", "m@/", "z@/"}, {"b@/"})

    rows, _ = again(life, {(life.plan.index["a"], ())})
    assert rows == {"b@/"}


def test_what_was_skipped_is_decided_anew_behind_what_runs_again() -> None:
    life = Life(plan("start -> i -true-> a -> m, i -false-> b -> m, m -> z", i=choose(), m=merge()))
    life.ok("i", outlet="true")
    life.ok("a", "m", "z")

    rows, sent = again(life, from_node(life.plan, life.facts, life.plan.index["i"]))

    assert (rows, sent) == (set(), {"i@/"})


def test_no_timeout_runs_from_before_the_start() -> None:
    life = Life(plan("start -> a -> m, start -> b -> m", m=merge(parameters={"timeout": 60})))
    life.ok("a")
    life.fail("b")

    rows = kept_results(life.plan, life.facts, unfinished(life.plan, life.facts), LATER)
    _, applied = fold(life.plan, [ExecutionStarted(LATER), *rows], LATER)

    assert {timer.kind: due for timer, due in applied.armed} == {"join": LATER + 60_000}


@given(st.data())
def test_nothing_kept_stands_on_what_runs_again(data: st.DataObject) -> None:
    """A new execution of kept results alone leads exactly to what runs again: no fact is out of place."""
    life = Life(plan("start -> s -> x -> y -> g -> z, x -> w -> g", s=split(), g=gather()))
    life.fan("s", 3)
    while life.queue:
        name = data.draw(st.sampled_from(sorted(life.queue)))
        if name.startswith("y") and data.draw(st.booleans()):
            life.fail(name)
        else:
            life.ok(name)
    results: list[Fact] = list(life.results())
    chosen = data.draw(st.sets(st.sampled_from([(each.node, each.path) for each in life.results()])))

    rows = kept_results(life.plan, results, chosen, LATER)
    state, applied = fold(life.plan, [ExecutionStarted(LATER), *rows], LATER)

    sent = {token.key for token in applied.emitted}
    assert {(each.node, each.path) for each in rows if isinstance(each, NodeResult)}.isdisjoint(sent)
    assert sent <= chosen or not chosen
    assert bool(sent) == bool(chosen)
    assert (state.finish is None) == bool(chosen)
