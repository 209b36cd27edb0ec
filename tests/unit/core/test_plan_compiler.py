"""The compiled plan: scopes, joins, races, routing, policies and timeouts of nodes."""

from __future__ import annotations

import json

import pytest

from rune.core.definition.model import Definition, Edge, Node
from rune.core.definition.parser import parse_document
from rune.core.node_type import NodeType
from rune.core.plan.compiler import compile_definition, names_of
from rune.core.plan.model import Plan
from rune.core.validation.validate import validate_document
from tests.support.plans import (
    CATALOGUE,
    aggregator,
    conditional,
    document,
    edge_names,
    merge,
    node,
    node_plan,
    plan,
    quorum,
    race,
    split,
    switch,
)


def names(p: Plan, nodes: object) -> set[str]:
    assert isinstance(nodes, frozenset | tuple)
    return {p.ids[each] for each in nodes}


def test_plan_lists_entries_triggers_leaves_and_outputs() -> None:
    p = plan("start -> a -> o, b -> c", o=node("output", {"value": 1}))

    assert names(p, p.entries) == {"start", "b"}
    assert names(p, p.triggers) == {"start"}
    assert names(p, p.leaves) == {"o", "c"}
    assert names(p, p.outputs) == {"o"}


def test_entry_marked_as_trigger_is_trigger() -> None:
    p = plan("a -> b, c -> d", a=node(trigger=True))

    assert names(p, p.triggers) == {"a"}


def test_equal_definitions_have_equal_hash() -> None:
    assert plan("start -> a").hash == plan("start -> a").hash != plan("start -> b").hash


@pytest.mark.parametrize(
    ("given", "inside", "policy"),
    [
        (None, False, "halt"),
        (None, True, "collect"),
        ("halt", True, "halt"),
        ("ignore", True, "ignore"),
        ("ignore", False, "ignore"),
    ],
)
def test_default_policy_is_collect_inside_split_else_halt(
    given: str | None, inside: bool, policy: str
) -> None:
    chains = "start -> s -> x" if inside else "start -> x"
    kinds = {"s": split()} if inside else {}
    p = plan(chains, x=node(error=given) if given else node(), **kinds)

    assert node_plan(p, "x").policy == policy


def test_split_and_aggregator_are_in_outer_scope() -> None:
    p = plan("start -> s -> x -> t -> y -> h -> g -> z", s=split(), t=split(), h=aggregator(), g=aggregator())

    assert [node_plan(p, each).depth for each in ("s", "x", "t", "y", "h", "g", "z")] == [0, 1, 1, 2, 1, 0, 0]
    assert (node_plan(p, "s").aggregator, node_plan(p, "g").split_of) == (p.index["g"], p.index["s"])
    assert names(p, node_plan(p, "s").body) == {"x", "t", "y", "h"}
    assert names(p, node_plan(p, "t").body) == {"y"}
    assert (node_plan(p, "x").split, node_plan(p, "z").split) == (p.index["s"], -1)


def test_edges_into_aggregator_have_gather_positions() -> None:
    p = plan("start -> s -> x -> g, s -> y -> g", s=split(), g=aggregator())

    assert {edge_names(p, [edge])[0]: place for edge, place in p.gather_position.items()} == {
        "x-g": 0,
        "y-g": 1,
    }


@pytest.mark.parametrize(
    ("kind", "single", "double"),
    [(node(), False, True), (merge(), True, True), (node("noop"), False, True)],
)
def test_is_join_by_type_and_in_edges(kind: dict[str, object], single: bool, double: bool) -> None:
    assert node_plan(plan("start -> a -> m", m=kind), "m").is_join is single
    assert node_plan(plan("start -> a -> m, start -> b -> m", m=kind), "m").is_join is double


def test_merge_without_in_edges_is_no_join() -> None:
    definition = Definition(id="x", nodes=(Node(id="m", type="merge"),))

    assert not compile_definition(definition, CATALOGUE).nodes[0].is_join


@pytest.mark.parametrize(
    ("kind", "mode", "needed"),
    [
        (merge(), "all", False),
        (race(), "any", False),
        (race({"cancel_losers": True}), "any", True),
        (quorum(2), 2, False),
        (node(join="any"), "any", False),
        (node("act", join="any"), "any", True),
        (node("act"), "all", False),
    ],
)
def test_join_mode_and_needs_choice(kind: dict[str, object], mode: object, needed: bool) -> None:
    found = node_plan(plan("start -> a -> m, start -> b -> m", m=kind), "m")

    assert (found.opens, found.needs_choice) == (mode, needed)


@pytest.mark.parametrize(
    ("chains", "region"),
    [
        ("start -> a -> m, start -> b -> c -> m", {"a", "b", "c"}),
        ("start -> a -> m, start -> b -> c -> m, c -> z", {"a"}),
        ("start -> a -> m, start -> s -> x -> g -> m", {"a", "s", "x", "g"}),
        ("start -> a -> m, start -> s -> x -> g -> m, x -> y", {"a", "g"}),
    ],
)
def test_race_region_holds_nodes_that_lead_only_to_race(chains: str, region: set[str]) -> None:
    kinds = {"s": split(), "g": aggregator()} if "g" in chains else {}
    p = plan(chains, m=race({"cancel_losers": True}), **kinds)

    assert names(p, node_plan(p, "m").region) - {"start"} == region


def test_race_region_stays_inside_its_scope() -> None:
    p = plan(
        "start -> s -> a -> m, s -> b -> m, m -> g",
        s=split(),
        m=race({"cancel_losers": True}),
        g=aggregator(),
    )

    assert names(p, node_plan(p, "m").region) == {"a", "b"}


def test_race_without_cancel_losers_has_no_region() -> None:
    assert node_plan(plan("start -> a -> m, start -> b -> m", m=race()), "m").region == frozenset()


def test_nodes_after_race_are_marked_raced() -> None:
    p = plan("start -> a -> m, start -> b -> m, m -> s -> x -> g -> z", m=race(), s=split(), g=aggregator())

    assert [node_plan(p, each).raced for each in ("a", "m", "s", "x", "g", "z")] == [
        False,
        True,
        True,
        True,
        True,
        True,
    ]


def test_race_inside_item_does_not_mark_nodes_after_aggregator() -> None:
    p = plan("start -> s -> a -> m, s -> b -> m, m -> g -> z", m=race(), s=split(), g=aggregator())

    assert [node_plan(p, each).raced for each in ("m", "g", "z")] == [True, False, False]


@pytest.mark.parametrize(
    ("node_name", "listed"),
    [
        ("a", False),
        ("s", False),
        ("x", True),
        ("t", True),
        ("y", True),
        ("o", False),
        ("p", False),
        ("z", False),
    ],
)
def test_node_is_listed_if_it_reaches_an_aggregator(node_name: str, listed: bool) -> None:
    p = plan(
        "start -> a -> s -> x -> t -> y -> h -> g -> z, x -> o, y -> p",
        s=split(),
        t=split(),
        h=aggregator(),
        g=aggregator(),
    )

    assert node_plan(p, node_name).listed is listed


@pytest.mark.parametrize(
    ("kind", "since"),
    [(aggregator(), "latest"), (aggregator({"timeout": 5}), "first")],
)
def test_aggregator_timeout_from_latest_unless_given(kind: dict[str, object], since: str) -> None:
    assert node_plan(plan("start -> s -> x -> g", s=split(), g=kind), "g").timeout_from == since


def test_races_with_timeout_are_listed_by_scope() -> None:
    p = plan(
        "start -> a -> m, start -> b -> m, start -> s -> x -> n, s -> y -> n",
        m=race({"timeout": 1}),
        n=race({"timeout": 1}),
        s=split(),
    )

    assert names(p, p.races) == {"m"}
    assert names(p, node_plan(p, "s").races) == {"n"}


def test_outlet_edges_may_be_given_by_id() -> None:
    kind = node("conditional", {"expression": True, "true_edge_id": "i-a", "false_edge_id": "i-b"})
    p = plan("start -> i -> a, i -> b", i=kind)

    assert {key: edge_names(p, alive) for key, (alive, _) in node_plan(p, "i").by_outlet.items()} == {
        "true": ["i-a"],
        "false": ["i-b"],
    }


def test_by_outlet_keys_of_plain_router_and_split_nodes() -> None:
    p = plan("start -> x -> i -true-> s -> y, i -false-> z", i=conditional(), s=split())

    assert [set(node_plan(p, each).by_outlet) for each in ("x", "i", "s")] == [
        {None},
        {"true", "false"},
        set(),
    ]


def test_switch_ignores_errors_to_fallback() -> None:
    p = plan("start -> i -case_0-> a, i -fallback-> b", i=switch(1))

    assert node_plan(p, "i").ignored == "fallback"
    assert edge_names(p, node_plan(p, "i").by_outlet["fallback"][0]) == ["i-b"]


def test_branch_policy_sets_rescue_edges() -> None:
    p = plan("start -> x -> a, x -!-> e", x=node(error="branch"))

    assert [edge_names(p, each) for each in node_plan(p, "x").rescue] == [["x-e"], ["x-a"]]
    assert edge_names(p, node_plan(p, "x").error_edges) == ["x-e"]


def test_retry_policy_of_type_is_overridden_by_node() -> None:
    retrying = NodeType(name="retrying", retry=lambda parameters: {"max_attempts": 7})
    catalogue = {**CATALOGUE, "retrying": retrying}
    raw = document("start -> a -> b", {"a": "retrying", "b": node("retrying", retry={"max_attempts": 2})})
    parsed = parse_document(json.dumps(raw))
    assert parsed.definition is not None

    p = compile_definition(parsed.definition, catalogue)

    assert [node_plan(p, each).retry.max_attempts for each in ("start", "a", "b")] == [1, 7, 2]


def test_parameters_compiled_by_validation_are_reused() -> None:
    parsed = parse_document(json.dumps(document("start -> a -> b", {"a": node("edit", {"assignments": []})})))
    verdict = validate_document(parsed, CATALOGUE)
    assert parsed.definition is not None

    compiled = [each for each in verdict.parameters if each is not None]

    p = compile_definition(parsed.definition, CATALOGUE, compiled)

    assert [each.parameters for each in p.nodes] == compiled


def test_title_shared_by_two_nodes_is_left_out() -> None:
    nodes = (
        Node(id="a", type="step", name="Fetch"),
        Node(id="b", type="step", name="Send"),
        Node(id="c", type="step", name="Send"),
        Node(id="d", type="step"),
    )

    assert names_of(Definition(id="x", nodes=nodes)).titles == {"Fetch": "a"}


def test_timeout_is_converted_to_ms() -> None:
    assert plan("start -> a", settings={"timeout": 1.5}).timeout == 1500
    assert plan("start -> a").timeout is None


def test_plan_keeps_its_definition() -> None:
    p = plan("start -> a")

    assert p.definition.edges == (Edge(id="start-a", src="start", dst="a"),)
