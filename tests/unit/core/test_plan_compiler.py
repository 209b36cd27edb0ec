"""What the compiler decides before an execution starts."""

from __future__ import annotations

import json

import pytest

from rune.core.definition.model import Definition, Edge, Node
from rune.core.definition.parser import parse_document
from rune.core.node_type import NodeType
from rune.core.plan.compiler import compile_definition, names_of
from rune.core.plan.model import Plan
from rune.core.validation.validate import validate_document
from tests.unit.core.plans import (
    CATALOGUE,
    at,
    choose,
    document,
    edge_names,
    gather,
    merge,
    most,
    node,
    plan,
    race,
    split,
    switch,
)


def names(p: Plan, nodes: object) -> set[str]:
    assert isinstance(nodes, frozenset | tuple)
    return {p.ids[each] for each in nodes}


def test_entries_triggers_leaves_and_outputs() -> None:
    p = plan("start -> a -> o, b -> c", o=node("output", {"value": 1}))

    assert names(p, p.entries) == {"start", "b"}
    assert names(p, p.triggers) == {"start"}
    assert names(p, p.leaves) == {"o", "c"}
    assert names(p, p.outputs) == {"o"}


def test_any_entry_may_be_the_trigger() -> None:
    p = plan("a -> b, c -> d", a=node(trigger=True))

    assert names(p, p.triggers) == {"a"}


def test_the_same_definition_has_the_same_hash() -> None:
    assert plan("start -> a").hash == plan("start -> a").hash != plan("start -> b").hash


@pytest.mark.parametrize(
    ("said", "inside", "policy"),
    [
        (None, False, "halt"),
        (None, True, "collect"),
        ("halt", True, "halt"),
        ("ignore", True, "ignore"),
        ("ignore", False, "ignore"),
    ],
)
def test_the_default_policy_depends_on_where_a_node_is(said: str | None, inside: bool, policy: str) -> None:
    chains = "start -> s -> x" if inside else "start -> x"
    kinds = {"s": split()} if inside else {}
    p = plan(chains, x=node(error=said) if said else node(), **kinds)

    assert at(p, "x").policy == policy


def test_a_split_and_its_aggregator_belong_to_the_scope_around() -> None:
    p = plan("start -> s -> x -> t -> y -> h -> g -> z", s=split(), t=split(), h=gather(), g=gather())

    assert [at(p, each).depth for each in ("s", "x", "t", "y", "h", "g", "z")] == [0, 1, 1, 2, 1, 0, 0]
    assert (at(p, "s").aggregator, at(p, "g").split_of) == (p.index["g"], p.index["s"])
    assert names(p, at(p, "s").body) == {"x", "t", "y", "h"}
    assert names(p, at(p, "t").body) == {"y"}
    assert (at(p, "x").split, at(p, "z").split) == (p.index["s"], -1)


def test_edges_into_an_aggregator_have_places() -> None:
    p = plan("start -> s -> x -> g, s -> y -> g", s=split(), g=gather())

    assert {edge_names(p, [edge])[0]: place for edge, place in p.gather_position.items()} == {
        "x-g": 0,
        "y-g": 1,
    }


@pytest.mark.parametrize(
    ("kind", "single", "double"),
    [(node(), False, True), (merge(), True, True), (node("noop"), False, True)],
)
def test_who_is_a_join(kind: dict[str, object], single: bool, double: bool) -> None:
    assert at(plan("start -> a -> m", m=kind), "m").is_join is single
    assert at(plan("start -> a -> m, start -> b -> m", m=kind), "m").is_join is double


def test_a_merge_without_in_edges_is_no_join() -> None:
    definition = Definition(id="x", nodes=(Node(id="m", type="merge"),))

    assert not compile_definition(definition, CATALOGUE).nodes[0].is_join


@pytest.mark.parametrize(
    ("kind", "opens", "needed"),
    [
        (merge(), "all", False),
        (race(), "any", False),
        (race({"cancel_losers": True}), "any", True),
        (most(2), 2, False),
        (node(join="any"), "any", False),
        (node("act", join="any"), "any", True),
        (node("act"), "all", False),
    ],
)
def test_who_must_say_who_opened_it(kind: dict[str, object], opens: object, needed: bool) -> None:
    found = at(plan("start -> a -> m, start -> b -> m", m=kind), "m")

    assert (found.opens, found.needs_choice) == (opens, needed)


@pytest.mark.parametrize(
    ("chains", "region"),
    [
        ("start -> a -> m, start -> b -> c -> m", {"a", "b", "c"}),
        ("start -> a -> m, start -> b -> c -> m, c -> z", {"a"}),
        ("start -> a -> m, start -> s -> x -> g -> m", {"a", "s", "x", "g"}),
        ("start -> a -> m, start -> s -> x -> g -> m, x -> y", {"a", "g"}),
    ],
)
def test_the_region_of_a_race(chains: str, region: set[str]) -> None:
    kinds = {"s": split(), "g": gather()} if "g" in chains else {}
    p = plan(chains, m=race({"cancel_losers": True}), **kinds)

    assert names(p, at(p, "m").region) - {"start"} == region


def test_the_region_stays_in_the_scope_of_the_race() -> None:
    p = plan(
        "start -> s -> a -> m, s -> b -> m, m -> g", s=split(), m=race({"cancel_losers": True}), g=gather()
    )

    assert names(p, at(p, "m").region) == {"a", "b"}


def test_without_cancelling_there_is_no_region() -> None:
    assert at(plan("start -> a -> m, start -> b -> m", m=race()), "m").region == frozenset()


def test_which_nodes_lie_behind_a_race() -> None:
    p = plan("start -> a -> m, start -> b -> m, m -> s -> x -> g -> z", m=race(), s=split(), g=gather())

    assert [at(p, each).raced for each in ("a", "m", "s", "x", "g", "z")] == [
        False,
        True,
        True,
        True,
        True,
        True,
    ]


def test_a_race_inside_an_item_is_not_seen_behind_its_aggregator() -> None:
    p = plan("start -> s -> a -> m, s -> b -> m, m -> g -> z", m=race(), s=split(), g=gather())

    assert [at(p, each).raced for each in ("m", "g", "z")] == [True, False, False]


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
def test_whose_failure_a_list_will_show(node_name: str, listed: bool) -> None:
    p = plan(
        "start -> a -> s -> x -> t -> y -> h -> g -> z, x -> o, y -> p",
        s=split(),
        t=split(),
        h=gather(),
        g=gather(),
    )

    assert at(p, node_name).listed is listed


@pytest.mark.parametrize(
    ("kind", "since"),
    [(gather(), "latest"), (gather({"timeout": 5}), "first")],
)
def test_from_when_an_aggregator_waits(kind: dict[str, object], since: str) -> None:
    assert at(plan("start -> s -> x -> g", s=split(), g=kind), "g").timeout_from == since


def test_races_with_a_timeout_are_known_by_their_scope() -> None:
    p = plan(
        "start -> a -> m, start -> b -> m, start -> s -> x -> n, s -> y -> n",
        m=race({"timeout": 1}),
        n=race({"timeout": 1}),
        s=split(),
    )

    assert names(p, p.races) == {"m"}
    assert names(p, at(p, "s").races) == {"n"}


def test_edges_of_outlets_may_be_named_by_id() -> None:
    kind = node("conditional", {"expression": True, "true_edge_id": "i-a", "false_edge_id": "i-b"})
    p = plan("start -> i -> a, i -> b", i=kind)

    assert {key: edge_names(p, alive) for key, (alive, _) in at(p, "i").by_outlet.items()} == {
        "true": ["i-a"],
        "false": ["i-b"],
    }


def test_only_what_fans_out_or_has_outlets_has_no_plain_way_out() -> None:
    p = plan("start -> x -> i -true-> s -> y, i -false-> z", i=choose(), s=split())

    assert [set(at(p, each).by_outlet) for each in ("x", "i", "s")] == [{None}, {"true", "false"}, set()]


def test_a_switch_knows_what_it_ignores_to() -> None:
    p = plan("start -> i -case_0-> a, i -fallback-> b", i=switch(1))

    assert at(p, "i").ignored == "fallback"
    assert edge_names(p, at(p, "i").by_outlet["fallback"][0]) == ["i-b"]


def test_the_error_edge_of_a_branch() -> None:
    p = plan("start -> x -> a, x -!-> e", x=node(error="branch"))

    assert [edge_names(p, each) for each in at(p, "x").rescue] == [["x-e"], ["x-a"]]
    assert edge_names(p, at(p, "x").error_edges) == ["x-e"]


def test_a_type_may_bring_a_retry_policy_that_the_node_may_replace() -> None:
    stubborn = NodeType(name="stubborn", retry=lambda parameters: {"max_attempts": 7})
    catalogue = {**CATALOGUE, "stubborn": stubborn}
    raw = document("start -> a -> b", {"a": "stubborn", "b": node("stubborn", retry={"max_attempts": 2})})
    parsed = parse_document(json.dumps(raw))
    assert parsed.definition is not None

    p = compile_definition(parsed.definition, catalogue)

    assert [at(p, each).retry.max_attempts for each in ("start", "a", "b")] == [1, 7, 2]


def test_what_validation_compiled_is_used() -> None:
    parsed = parse_document(json.dumps(document("start -> a -> b", {"a": node("edit", {"assignments": []})})))
    verdict = validate_document(parsed, CATALOGUE)
    assert parsed.definition is not None

    compiled = [each for each in verdict.parameters if each is not None]

    p = compile_definition(parsed.definition, CATALOGUE, compiled)

    assert [each.parameters for each in p.nodes] == compiled


def test_a_name_that_two_nodes_share_names_nobody() -> None:
    nodes = (
        Node(id="a", type="step", name="Fetch"),
        Node(id="b", type="step", name="Send"),
        Node(id="c", type="step", name="Send"),
        Node(id="d", type="step"),
    )

    assert names_of(Definition(id="x", nodes=nodes)).titles == {"Fetch": "a"}


def test_a_deadline_in_ms() -> None:
    assert plan("start -> a", settings={"timeout": 1.5}).timeout == 1500
    assert plan("start -> a").timeout is None


def test_a_plan_keeps_its_definition() -> None:
    p = plan("start -> a")

    assert p.definition.edges == (Edge(id="start-a", src="start", dst="a"),)
