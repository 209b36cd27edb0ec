"""The entry that one item of a fan-out gives to its aggregator."""

from __future__ import annotations

from rune.core.execution.fact import NodeResult
from rune.core.execution.joins import Entry, item_entry
from rune.core.execution.token import Ref
from tests.support.plans import ExecutionDriver, aggregator, conditional, node, node_plan, plan, split


def entry(execution: ExecutionDriver, item: int, name: str = "g", path: tuple[int, ...] = ()) -> Entry:
    return item_entry(execution.plan, node_plan(execution.plan, name), path, item, execution.lookup)


def ref(execution: ExecutionDriver, name: str, item: int) -> Ref:
    return Ref("result", execution.plan.index[name], (execution.plan.index["s"], item))


def test_entry_holds_payload_of_live_edge() -> None:
    execution = ExecutionDriver(plan("start -> s -> x -> g", s=split(), g=aggregator()))
    execution.fan_out("s", 2)
    execution.ok("x@/s:1")

    assert entry(execution, 1) == Entry(((execution.plan.index["x"], ref(execution, "x", 1)),), None)


def test_several_live_edges_are_keyed_by_predecessor() -> None:
    execution = ExecutionDriver(plan("start -> s -> x -> g, s -> y -> g, y -> g", s=split(), g=aggregator()))
    execution.fan_out("s", 1)
    execution.ok("y@/s:0", "x@/s:0")

    assert [execution.plan.ids[source] for source, _ in entry(execution, 0).payloads] == ["x", "y"]


def test_item_that_ended_elsewhere_has_empty_entry() -> None:
    execution = ExecutionDriver(
        plan("start -> s -> i -true-> g, i -false-> x", s=split(), i=conditional(), g=aggregator())
    )
    execution.fan_out("s", 2)
    execution.ok("i@/s:0", outlet="false")
    execution.ok("i@/s:1", outlet="true")

    assert entry(execution, 0) == Entry((), None)
    assert [each for _, each in entry(execution, 1).payloads] == [Ref("item", 1, (1, 1))]


def test_split_directly_to_aggregator_yields_items() -> None:
    execution = ExecutionDriver(plan("start -> s -> g", s=split(), g=aggregator()))
    execution.fan_out("s", 2)

    assert entry(execution, 1).payloads == ((1, Ref("item", 1, (1, 1))),)


def test_error_propagates_along_dead_edges() -> None:
    execution = ExecutionDriver(plan("start -> s -> x -> y -> z -> g", s=split(), g=aggregator()))
    execution.fan_out("s", 1)
    execution.fail("x@/s:0")

    assert entry(execution, 0) == Entry((), ref(execution, "x", 0))


def test_first_error_in_edge_order_is_used() -> None:
    execution = ExecutionDriver(plan("start -> s -> x -> g, s -> y -> g", s=split(), g=aggregator()))
    execution.fan_out("s", 1)
    execution.fail("y@/s:0", "x@/s:0")

    assert entry(execution, 0).error == ref(execution, "x", 0)


def test_one_failed_edge_makes_entry_an_error() -> None:
    execution = ExecutionDriver(plan("start -> s -> x -> g, s -> y -> g", s=split(), g=aggregator()))
    execution.fan_out("s", 1)
    execution.ok("x@/s:0")
    execution.fail("y@/s:0")

    assert entry(execution, 0).error == ref(execution, "y", 0)


def test_join_that_runs_absorbs_error() -> None:
    execution = ExecutionDriver(plan("start -> s -> x -> j, s -> y -> j, j -> g", s=split(), g=aggregator()))
    execution.fan_out("s", 1)
    execution.fail("x@/s:0")
    execution.ok("y@/s:0", "j@/s:0")

    assert entry(execution, 0) == Entry(((execution.plan.index["j"], ref(execution, "j", 0)),), None)


def test_failure_handled_by_ignore_or_branch_is_no_error() -> None:
    handled = {"x": node(error="ignore"), "y": node(error="branch")}
    execution = ExecutionDriver(
        plan("start -> s -> x -> g, s -> y -> q -> g, y -!-> e -> g", s=split(), g=aggregator(), **handled)
    )
    execution.fan_out("s", 1)
    execution.fail("x@/s:0", "y@/s:0")
    execution.ok("e@/s:0")

    assert entry(execution, 0) == Entry(
        (
            (execution.plan.index["x"], ref(execution, "x", 0)),
            (execution.plan.index["e"], ref(execution, "e", 0)),
        ),
        None,
    )


def test_failed_inner_split_is_error_of_outer_item() -> None:
    execution = ExecutionDriver(
        plan("start -> s -> t -> x -> h -> y -> g", s=split(), t=split(), h=aggregator(), g=aggregator())
    )
    execution.fan_out("s", 1)
    execution.fail("t@/s:0")

    assert entry(execution, 0) == Entry((), ref(execution, "t", 0))


def test_inner_aggregator_collects_its_own_scope() -> None:
    execution = ExecutionDriver(
        plan("start -> s -> t -> x -> h -> g", s=split(), t=split(), h=aggregator(), g=aggregator())
    )
    execution.fan_out("s", 2)
    execution.fan_out("t@/s:1", 2)
    execution.fail("x@/s:1/t:0")
    execution.ok("x@/s:1/t:1")
    x, path = execution.plan.index["x"], (1, 1)

    assert entry(execution, 0, "h", path).error == Ref("result", x, (1, 1, 2, 0))
    assert entry(execution, 1, "h", path).payloads == ((x, Ref("result", x, (1, 1, 2, 1))),)


def test_item_that_has_not_begun_has_empty_entry() -> None:
    execution = ExecutionDriver(plan("start -> s -> x -> g", s=split(), g=aggregator()))
    execution.fan_out("s", 2)
    execution.ok("x@/s:1")

    assert entry(execution, 0) == Entry((), None)


def test_cancelled_node_gives_empty_entry() -> None:
    execution = ExecutionDriver(plan("start -> s -> x -> y -> g", s=split(), g=aggregator()))
    execution.fan_out("s", 1)
    execution.cancel("x@/s:0")

    assert entry(execution, 0) == Entry((), None)


def test_skipped_diamonds_are_walked_in_linear_time() -> None:
    diamonds = ", ".join(f"d{i} -> l{i} -> d{i + 1}, d{i} -> r{i} -> d{i + 1}" for i in range(60))
    chains = f"start -> s -> i -true-> d0, i -false-> o, {diamonds}, d60 -> g"
    execution = ExecutionDriver(plan(chains, s=split(), i=conditional(), g=aggregator()))
    execution.fan_out("s", 1)
    execution.ok("i@/s:0", outlet="false")

    assert entry(execution, 0) == Entry((), None)


def test_error_before_a_chain_of_skipped_nodes_longer_than_the_stack() -> None:
    names = [f"n{at}" for at in range(1_900)]
    chain = " -> ".join(names)
    execution = ExecutionDriver(plan(f"start -> s -> x -> {chain} -> g", s=split(), g=aggregator()))
    execution.fan_out("s", 1)
    failed = NodeResult(execution.plan.index["x"], (execution.plan.index["s"], 0), 1, "failed")

    def results(index: int, path: tuple[int, ...]) -> NodeResult | None:
        return failed if index == failed.node else None

    found = item_entry(execution.plan, node_plan(execution.plan, "g"), (), 0, results)
    assert found == Entry((), ref(execution, "x", 0))
