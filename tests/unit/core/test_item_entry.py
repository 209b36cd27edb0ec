"""What one item of a fan-out brings to its aggregator."""

from __future__ import annotations

from rune.core.execution.joins import Entry, item_entry
from rune.core.execution.token import Ref
from tests.unit.core.plans import Life, at, choose, gather, node, plan, split


def entry(life: Life, item: int, aggregator: str = "g", path: tuple[int, ...] = ()) -> Entry:
    return item_entry(life.plan, at(life.plan, aggregator), path, item, life.lookup)


def ref(life: Life, name: str, item: int) -> Ref:
    return Ref("result", life.plan.index[name], (life.plan.index["s"], item))


def test_the_payload_on_its_edge() -> None:
    life = Life(plan("start -> s -> x -> g", s=split(), g=gather()))
    life.fan("s", 2)
    life.ok("x@/s:1")

    assert entry(life, 1) == Entry(((life.plan.index["x"], ref(life, "x", 1)),), None)


def test_several_live_edges_come_by_predecessor() -> None:
    life = Life(plan("start -> s -> x -> g, s -> y -> g, y -> g", s=split(), g=gather()))
    life.fan("s", 1)
    life.ok("y@/s:0", "x@/s:0")

    assert [life.plan.ids[source] for source, _ in entry(life, 0).payloads] == ["x", "y"]


def test_an_item_that_ended_elsewhere_brings_nothing() -> None:
    life = Life(plan("start -> s -> i -true-> g, i -false-> x", s=split(), i=choose(), g=gather()))
    life.fan("s", 2)
    life.ok("i@/s:0", outlet="false")
    life.ok("i@/s:1", outlet="true")

    assert entry(life, 0) == Entry((), None)
    assert [each for _, each in entry(life, 1).payloads] == [Ref("item", 1, (1, 1))]


def test_a_split_that_leads_straight_to_its_aggregator_brings_the_items() -> None:
    life = Life(plan("start -> s -> g", s=split(), g=gather()))
    life.fan("s", 2)

    assert entry(life, 1).payloads == ((1, Ref("item", 1, (1, 1))),)


def test_an_error_travels_along_dead_edges() -> None:
    life = Life(plan("start -> s -> x -> y -> z -> g", s=split(), g=gather()))
    life.fan("s", 1)
    life.fail("x@/s:0")

    assert entry(life, 0) == Entry((), ref(life, "x", 0))


def test_of_several_errors_the_first_in_edge_order_counts() -> None:
    life = Life(plan("start -> s -> x -> g, s -> y -> g", s=split(), g=gather()))
    life.fan("s", 1)
    life.fail("y@/s:0", "x@/s:0")

    assert entry(life, 0).error == ref(life, "x", 0)


def test_one_failed_edge_makes_the_entry_an_error() -> None:
    life = Life(plan("start -> s -> x -> g, s -> y -> g", s=split(), g=gather()))
    life.fan("s", 1)
    life.ok("x@/s:0")
    life.fail("y@/s:0")

    assert entry(life, 0).error == ref(life, "y", 0)


def test_a_join_that_still_runs_absorbs_the_error() -> None:
    life = Life(plan("start -> s -> x -> j, s -> y -> j, j -> g", s=split(), g=gather()))
    life.fan("s", 1)
    life.fail("x@/s:0")
    life.ok("y@/s:0", "j@/s:0")

    assert entry(life, 0) == Entry(((life.plan.index["j"], ref(life, "j", 0)),), None)


def test_what_ignore_and_branch_handled_is_no_error() -> None:
    handled = {"x": node(error="ignore"), "y": node(error="branch")}
    life = Life(
        plan("start -> s -> x -> g, s -> y -> q -> g, y -!-> e -> g", s=split(), g=gather(), **handled)
    )
    life.fan("s", 1)
    life.fail("x@/s:0", "y@/s:0")
    life.ok("e@/s:0")

    assert entry(life, 0) == Entry(
        ((life.plan.index["x"], ref(life, "x", 0)), (life.plan.index["e"], ref(life, "e", 0))), None
    )


def test_a_failed_inner_split_is_the_error_of_the_outer_item() -> None:
    life = Life(plan("start -> s -> t -> x -> h -> y -> g", s=split(), t=split(), h=gather(), g=gather()))
    life.fan("s", 1)
    life.fail("t@/s:0")

    assert entry(life, 0) == Entry((), ref(life, "t", 0))


def test_an_inner_aggregator_gathers_in_its_own_scope() -> None:
    life = Life(plan("start -> s -> t -> x -> h -> g", s=split(), t=split(), h=gather(), g=gather()))
    life.fan("s", 2)
    life.fan("t@/s:1", 2)
    life.fail("x@/s:1/t:0")
    life.ok("x@/s:1/t:1")
    x, path = life.plan.index["x"], (1, 1)

    assert entry(life, 0, "h", path).error == Ref("result", x, (1, 1, 2, 0))
    assert entry(life, 1, "h", path).payloads == ((x, Ref("result", x, (1, 1, 2, 1))),)


def test_a_cancelled_node_brings_nothing() -> None:
    life = Life(plan("start -> s -> x -> y -> g", s=split(), g=gather()))
    life.fan("s", 1)
    life.cancel("x@/s:0")

    assert entry(life, 0) == Entry((), None)


def test_many_skipped_diamonds_are_walked_once() -> None:
    diamonds = ", ".join(f"d{i} -> l{i} -> d{i + 1}, d{i} -> r{i} -> d{i + 1}" for i in range(60))
    chains = f"start -> s -> i -true-> d0, i -false-> o, {diamonds}, d60 -> g"
    life = Life(plan(chains, s=split(), i=choose(), g=gather()))
    life.fan("s", 1)
    life.ok("i@/s:0", outlet="false")

    assert entry(life, 0) == Entry((), None)
