"""Scopes of splits and aggregators, and the definitions that are rejected."""

from __future__ import annotations

from typing import Any

from rune.core.definition import problems as codes
from rune.core.definition.problems import Problem
from rune.core.limits import LIMITS, Limits
from rune.core.plan.graph import Scopes, build_graph, find_scopes
from rune.nodes.registry import standard_catalogue
from tests.support.documents import document, node, parsed


def scopes(raw: dict[str, Any], limits: Limits = LIMITS) -> tuple[Scopes, list[Problem]]:
    result = parsed(raw)
    assert result.definition is not None
    definition = result.definition
    graph = build_graph([each.id for each in definition.nodes], definition.edges)
    types = [standard_catalogue().get(each.type) for each in definition.nodes]
    return find_scopes(graph, types, definition.edges, result.places, limits)


def split(id: str) -> dict[str, Any]:
    return node(id, "split", {"input_array": "$trigger"})


def test_nodes_between_split_and_aggregator_are_inside_scope() -> None:
    raw = document(
        [node("a"), split("s"), node("x"), node("g", "aggregator"), node("z")], "a>s", "s>x", "x>g", "g>z"
    )

    found, problems = scopes(raw)

    assert problems == []
    assert found.depth == (0, 0, 1, 0, 0)
    assert found.split == (None, None, 1, None, None)
    assert (found.aggregator, found.split_of) == ({1: 3}, {3: 1})


def test_nested_splits_have_own_aggregators() -> None:
    nodes = [split("s"), split("t"), node("x"), node("h", "aggregator"), node("y"), node("g", "aggregator")]

    found, problems = scopes(document(nodes, "s>t", "t>x", "x>h", "h>y", "y>g"))

    assert problems == []
    assert found.depth == (0, 1, 2, 1, 1, 0)
    assert found.enclosing(2) == (0, 1)
    assert found.aggregator == {0: 5, 1: 3}


def test_split_without_body_or_aggregator_is_valid() -> None:
    assert scopes(document([split("s"), node("x")], "s>x"))[1] == []
    found, problems = scopes(document([split("s"), node("g", "aggregator")], "s>g"))
    assert (problems, found.depth) == ([], (0, 0))


def test_error_edges_of_split_and_aggregator_are_outside_scope() -> None:
    nodes = [split("s"), node("x"), node("g", "aggregator"), node("z"), node("r")]
    raw = document(nodes, "s>x", "x>g", "g>z", "s>r!", "g>r!", "z>r")

    found, problems = scopes(raw)

    assert problems == []
    assert found.depth[4] == 0


def test_error_edge_of_inner_node_is_inside_scope() -> None:
    nodes = [split("s"), node("x"), node("r"), node("g", "aggregator")]

    found, problems = scopes(document(nodes, "s>x", "x>g", "x>r!", "r>g"))

    assert problems == []
    assert found.split[2] == 0


def test_paths_of_different_scopes_meeting_is_rejected() -> None:
    raw = document([node("a"), split("s"), node("x"), node("m")], "a>s", "s>x", "x>m", "a>m")

    (problem,) = scopes(raw)[1]

    assert (problem.path, problem.code) == ("edges[3]", codes.SCOPES_MEET)
    assert "`m`" in problem.message
    assert "`a-m`" in problem.message
    assert "inside split `s`" in problem.message


def test_items_of_two_splits_meeting_is_rejected() -> None:
    raw = document([node("a"), split("s"), split("t"), node("m")], "a>s", "a>t", "s>m", "t>m")

    assert [each.code for each in scopes(raw)[1]] == [codes.SCOPES_MEET]


def test_aggregator_outside_split_is_rejected() -> None:
    inside = scopes(document([node("a"), node("g", "aggregator")], "a>g"))[1]
    entry = scopes(document([node("g", "aggregator")]))[1]

    assert [(each.path, each.code) for each in inside] == [("nodes[1]", codes.AGGREGATOR_OUTSIDE_SPLIT)]
    assert "`a-g`" in inside[0].message
    assert [(each.path, each.code) for each in entry] == [("nodes[0]", codes.AGGREGATOR_OUTSIDE_SPLIT)]


def test_second_aggregator_of_split_is_rejected() -> None:
    nodes = [split("s"), node("x"), node("g", "aggregator"), node("h", "aggregator")]

    (problem,) = scopes(document(nodes, "s>x", "x>g", "x>h"))[1]

    assert (problem.path, problem.code) == ("nodes[3]", codes.TWO_AGGREGATORS)
    assert "`x-h`" in problem.message


def test_output_inside_split_is_rejected() -> None:
    (problem,) = scopes(document([split("s"), node("o", "output")], "s>o"))[1]

    assert (problem.path, problem.code) == ("nodes[1]", codes.OUTPUT_IN_SPLIT)


def test_split_nesting_above_limit_is_rejected() -> None:
    raw = document([split("a"), split("b"), split("c")], "a>b", "b>c")

    assert scopes(raw, Limits(split_depth=3))[1] == []
    assert [(each.path, each.code) for each in scopes(raw, Limits(split_depth=2))[1]] == [
        ("nodes[2]", codes.SPLIT_TOO_DEEP)
    ]


def test_unknown_types_and_cycles_do_not_prevent_analysis() -> None:
    nodes = [split("s"), node("u", "teleport"), node("g", "aggregator"), node("c"), node("d")]

    found, problems = scopes(document(nodes, "s>u", "u>g", "c>d", "d>c"))

    assert problems == []
    assert found.depth == (0, 1, 0, 0, 0)
