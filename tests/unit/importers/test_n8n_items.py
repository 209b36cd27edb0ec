"""Imported n8n workflows pass the same items from node to node as n8n does.

The expected items follow from the documentation of n8n's nodes and expressions, not from what the importer makes.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rune.documents.importers import Import, import_document
from rune.nodes.registry import standard_catalogue
from tests.unit.importers.mocked import run_mocked

Node = dict[str, Any]
Items = list[dict[str, Any]]

ROWS = {"rows": [{"v": 1}, {"v": 2}, {"v": 3}], "who": "ada"}
NESTED = {"rows": [{"id": "a", "xs": [{"v": 1}, {"v": 2}]}, {"id": "b", "xs": [{"v": 3}]}]}


def step(name: str, kind: str, version: float = 1, **parameters: Any) -> Node:
    return {
        "name": name,
        "type": f"n8n-nodes-base.{kind}",
        "typeVersion": version,
        "position": [0, 0],
        "parameters": parameters,
    }


def assign(name: str, **values: Any) -> Node:
    """A Set node. Values of `n_…` are numbers, others are texts."""
    kinds = {key: "number" if key == "v" or key.startswith("n_") else "string" for key in values}
    listed = [{"id": key, "name": key, "type": kinds[key], "value": each} for key, each in values.items()]
    return step(name, "set", 3.4, assignments={"assignments": listed})


def split(name: str, field: str, **parameters: Any) -> Node:
    return step(name, "splitOut", fieldToSplitOut=field, **parameters)


def request(name: str) -> Node:
    return step(name, "httpRequest", 4.2, url="=https://api.example/{{ $json.v }}")


def answer(parameters: dict[str, Any]) -> dict[str, Any]:
    """Ten times the number at the end of the address, under `got.v` and under `v`."""
    found = 10 * int(re.findall(r"\d+$", parameters["url"])[0])
    return {"status": 200, "headers": {}, "body": {"v": found, "got": {"v": found}}, "duration_ms": 1}


def gather(name: str, field: str = "") -> Node:
    if field:
        return step(name, "aggregate", fieldsToAggregate={"fieldToAggregate": [{"fieldToAggregate": field}]})
    return step(name, "aggregate", aggregate="aggregateAllItemData", destinationFieldName="all")


def order(name: str, field: str) -> Node:
    return step(name, "sort", sortFieldsUi={"sortField": [{"fieldName": field, "order": "descending"}]})


def more_than(name: str, kind: str, field: str, value: int) -> Node:
    rule = {
        "leftValue": f"={{{{ $json.{field} }}}}",
        "rightValue": value,
        "operator": {"type": "number", "operation": "gt"},
    }
    return step(name, kind, 2, conditions={"combinator": "and", "conditions": [rule]})


def once(node: Node) -> Node:
    return {**node, "executeOnce": True}


def loop(name: str, size: int = 1) -> Node:
    return step(name, "splitInBatches", 3, batchSize=size)


def export(nodes: list[Node], *links: str) -> dict[str, Any]:
    """A workflow behind a trigger. A link is `source:output target`."""
    connections: dict[str, Any] = {}
    for link in links:
        source, target = link.split(" ")
        name, _, output = source.partition(":")
        outputs = connections.setdefault(name, {"main": []})["main"]
        while len(outputs) <= int(output or 0):
            outputs.append([])
        outputs[int(output or 0)].append({"node": target, "type": "main", "index": 0})
    return {"name": "Items", "nodes": [step("Start", "manualTrigger"), *nodes], "connections": connections}


def chain(*nodes: Node) -> dict[str, Any]:
    names = ["Start", *(each["name"] for each in nodes)]
    return export(list(nodes), *(f"{a} {b}" for a, b in itertools.pairwise(names)))


def imported(source: dict[str, Any]) -> Import:
    return import_document(json.dumps(source), standard_catalogue())


def outputs(found: Import, payload: Any) -> dict[str, list[Any]]:
    """Run an import, with `answer` in place of every request; return the outputs by node."""
    assert [each for each in found.report.problems if each.severity == "error"] == []
    requests = {each["id"]: answer for each in found.document["nodes"] if each["type"] == "http"}
    result, _ = run_mocked(found.document, payload, requests, {})
    assert result["status"] == "completed", result["error"]
    made: dict[str, list[Any]] = {}
    for each in result["nodes"]:
        if each["status"] == "success":
            made.setdefault(each["node_id"], []).append(each["output"])
    return made


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ([request("Post"), gather("End")], {"all": [{"v": n, "got": {"v": n}} for n in (10, 20, 30)]}),
        ([request("Post"), gather("End", "got")], {"got": [{"v": 10}, {"v": 20}, {"v": 30}]}),
        ([request("Post"), order("Sort", "got.v"), gather("End", "v")], {"v": [30, 20, 10]}),
        ([request("Post"), step("Two", "limit", maxItems=2), gather("End", "v")], {"v": [10, 20]}),
        ([request("Post"), step("Two", "limit", maxItems=2, keep="lastItems"), gather("End", "v")], {"v": [20, 30]}),
        ([request("Post"), more_than("Most", "filter", "got.v", 10), assign("S", v="={{ $json.v }}"),
          gather("End", "v")], {"v": [20, 30]}),
        ([assign("Same", v="=7"), step("Only", "removeDuplicates"), gather("End", "v")], {"v": [7]}),
        ([request("Post"), assign("S", v="={{ $json.got.v }}"), gather("End", "v")], {"v": [10, 20, 30]}),
        ([assign("A", v="={{ $json.v }}"), once(assign("B", v="={{ $json.v }}")), gather("End", "v")], {"v": [1]}),
        ([step("A", "set", 3.4, mode="raw", jsonOutput='{"v": null}'), gather("End", "v")], {"v": []}),
    ],
)  # fmt: skip
def test_items_behind_a_chain_that_runs_per_item_are_those_of_n8n(nodes: list[Node], expected: Any) -> None:
    found = outputs(imported(chain(split("Rows", "rows"), *nodes)), ROWS)

    assert found["End"] == [expected]


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ([assign("End", n_count="={{ $input.all().length }}", first="={{ $input.first().json.v }}",
                 last="={{ $input.last().json.v }}")],
         [{"n_count": 3, "first": "1", "last": "3"}] * 3),
        ([assign("A", v="={{ $json.v }}"),
          assign("End", all="={{ $('A').all().map(i => i.json.v).join(',') }}", own="={{ $json.v }}",
                 row="={{ $('Rows').item.json.v }}", a="={{ $('A').item.json.v }}")],
         [{"all": "1,2,3", "own": each, "row": each, "a": each} for each in "123"]),
        ([assign("A", v="={{ $json.v }}"), assign("B", v="={{ $json.v * 2 }}"),
          assign("End", first="={{ $('A').first().json.v }}", last="={{ $('B').last().json.v }}",
                 row="={{ $('Rows').item.json.v }}", i="={{ $itemIndex }}")],
         [{"first": "1", "last": "6", "row": str(n), "i": str(n - 1)} for n in (1, 2, 3)]),
        ([assign("A", v="={{ $json.v * 10 }}"), assign("B", v="={{ $json.v + 1 }}"), gather("All", "v"),
          assign("End", first="={{ $('A').first().json.v }}", last="={{ $('B').last().json.v }}")],
         [{"first": "10", "last": "31"}]),
        ([more_than("Most", "filter", "v", 1), assign("End", n_count="={{ $input.all().length }}")],
         [{"n_count": 2}] * 2),
    ],
)  # fmt: skip
def test_expression_that_reads_all_items_of_a_chain_sees_all(nodes: list[Node], expected: Items) -> None:
    found = outputs(imported(chain(split("Rows", "rows"), *nodes)), ROWS)

    assert found["End"] == expected


@pytest.mark.parametrize(
    ("body", "links", "payload", "expected"),
    [
        ([request("Post")], ["Loop:1 Post", "Post Loop"], ROWS, [{"v": n, "got": {"v": n}} for n in (10, 20, 30)]),
        ([assign("A", i="={{ $itemIndex }}", n_all="={{ $input.all().length }}")], ["Loop:1 A", "A Loop"], ROWS,
         [{"i": "0", "n_all": 1}] * 3),
        ([split("In", "xs"), assign("A", v="={{ $json.v }}", n_all="={{ $input.all().length }}")],
         ["Loop:1 In", "In A", "A Loop"], NESTED,
         [{"v": 1, "n_all": 2}, {"v": 2, "n_all": 2}, {"v": 3, "n_all": 1}]),
        ([split("In", "xs"), loop("Inner"), assign("A", v="={{ $json.v }}")],
         ["Loop:1 In", "In Inner", "Inner:1 A", "A Inner", "Inner Loop"], NESTED, [{"v": 1}, {"v": 2}, {"v": 3}]),
    ],
)  # fmt: skip
def test_items_behind_a_loop_are_those_of_n8n(
    body: list[Node], links: list[str], payload: Any, expected: Items
) -> None:
    nodes = [split("Rows", "rows"), loop("Loop"), *body, gather("End")]

    found = outputs(imported(export(nodes, "Start Rows", "Rows Loop", "Loop End", *links)), payload)

    assert found["End"] == [{"all": expected}]


@pytest.mark.parametrize(
    ("parameters", "payload", "expected"),
    [
        ({}, {"rows": [{"a": 1}, 2]}, [{"a": 1}, {"rows": 2}]),
        ({}, {"rows": {"x": {"a": 1}, "y": 2}}, [{"a": 1}, {"rows": 2}]),
        ({"include": "allOtherFields"}, {"rows": [1], "b": 2}, [{"rows": 1, "b": 2}]),
        ({"include": "allOtherFields", "options": {"destinationFieldName": "row"}}, {"rows": [1], "b": 2},
         [{"b": 2, "row": 1}]),
    ],
)  # fmt: skip
def test_split_out_gives_the_items_of_n8n(parameters: Any, payload: Any, expected: Items) -> None:
    assert outputs(imported(chain(split("Rows", "rows", **parameters))), payload)["Rows"] == [
        {"items": expected}
    ]


@pytest.mark.parametrize(
    ("nodes", "links", "name"),
    [
        # The item of the loop cannot be named inside of the inner list.
        ([loop("Loop"), split("In", "xs"), assign("A", id="={{ $('Loop').item.json.id }}")],
         ["Rows Loop", "Loop:1 In", "In A", "A Loop"], "A"),
        # n8n gives the items of the last pass.
        ([loop("Loop"), assign("A", v="=1"), assign("B", v="={{ $('A').all().length }}")],
         ["Rows Loop", "Loop:1 A", "A Loop", "Loop B"], "B"),
        # n8n counts the items that arrive.
        ([more_than("Most", "if", "v", 1), assign("A", i="={{ $itemIndex }}")], ["Rows Most", "Most A"], "A"),
        ([loop("Loop", 2), assign("A", n_all="={{ $input.all().length }}")], ["Rows Loop", "Loop:1 A", "A Loop"], "A"),
        ([assign("A", v="=1"), assign("B", v="={{ $('A').first(0, 1).json.v }}")], ["Rows A", "A B"], "B"),
    ],
)  # fmt: skip
def test_items_that_cannot_be_named_are_by_hand(nodes: list[Node], links: list[str], name: str) -> None:
    found = imported(export([split("Rows", "rows"), *nodes], "Start Rows", *links))

    assert [each.node for each in found.report.entries if each.status == "by_hand"] == [name]


FIELDS = {
    "zero": 0,
    "none": None,
    "blank": "",
    "no": False,
    "a": "Abc",
    "five": 5,
    "list": [1],
    "empty": [],
    "o": {"a": 1},
}


@pytest.mark.parametrize(
    ("kind", "field", "operation", "right", "expected"),
    [
        ("number", "zero", "empty", None, False),
        ("number", "none", "empty", None, True),
        ("boolean", "no", "empty", None, False),
        ("string", "blank", "empty", None, True),
        ("string", "none", "empty", None, True),
        ("array", "empty", "empty", None, True),
        ("object", "o", "empty", None, False),
        ("string", "none", "exists", None, False),
        ("string", "blank", "exists", None, True),
        ("string", "missing", "equals", "", True),
        ("string", "none", "notEquals", "", False),
        ("string", "missing", "contains", "a", False),
        ("string", "missing", "notContains", "a", True),
        ("string", "missing", "startsWith", "a", False),
        ("string", "a", "equals", "={{ $json.missing }}", False),
        ("string", "a", "regex", "/^abc$/i", True),
        ("string", "a", "regex", "/^abc$/", False),
        ("string", "a", "regex", "^Abc$", True),
        ("boolean", "no", "false", None, True),
        ("boolean", "missing", "false", None, True),
        ("boolean", "missing", "true", None, False),
        ("array", "missing", "contains", 1, False),
        ("array", "missing", "lengthEquals", 0, True),
        ("array", "list", "lengthEquals", "1", True),
        ("number", "five", "equals", "5", True),
        ("number", "five", "gte", 5, True),
        ("number", "missing", "gt", 1, False),
        ("number", "missing", "lt", 1, False),
        ("number", "none", "lt", 1, True),
    ],
)
def test_condition_holds_for_the_values_of_n8n(
    kind: str, field: str, operation: str, right: Any, expected: bool
) -> None:
    rule = {
        "leftValue": f"={{{{ $json.{field} }}}}",
        "rightValue": right,
        "operator": {"type": kind, "operation": operation},
    }
    options = {"caseSensitive": True, "typeValidation": "strict"}
    test = step("If", "if", 2, conditions={"combinator": "and", "conditions": [rule], "options": options})

    assert took(test) == expected


@pytest.mark.parametrize(
    ("kind", "field", "operation", "right", "expected"),
    [
        ("string", "zero", "isEmpty", None, False),
        ("string", "none", "isEmpty", None, True),
        ("string", "empty", "isEmpty", None, True),
        ("string", "missing", "contains", "a", False),
        ("string", "missing", "equal", "", False),
        ("number", "missing", "smaller", 5, True),
        ("number", "none", "larger", 5, False),
    ],
)
def test_former_condition_holds_for_the_values_of_n8n(
    kind: str, field: str, operation: str, right: Any, expected: bool
) -> None:
    rule = {"value1": f"={{{{ $json.{field} }}}}", "value2": right, "operation": operation}

    assert took(step("If", "if", 1, conditions={kind: [rule]})) == expected


def test_condition_without_regard_to_case_keeps_the_pattern() -> None:
    rule = {
        "leftValue": "={{ $json.a }}",
        "rightValue": "\\D",
        "operator": {"type": "string", "operation": "regex"},
    }
    options = {"caseSensitive": False}

    assert took(
        step("If", "if", 2, conditions={"combinator": "and", "conditions": [rule], "options": options})
    )


def took(test: Node) -> bool:
    """Whether the output `true` of an If was taken."""
    nodes = [test, step("Yes", "noOp"), step("No", "noOp")]
    found = outputs(imported(export(nodes, "Start If", "If:0 Yes", "If:1 No")), FIELDS)
    assert ("Yes" in found) != ("No" in found)
    return "Yes" in found


def test_branches_of_several_items_that_meet_are_reported_as_two_runs() -> None:
    """Each item takes one branch, but the items take both: n8n runs what is behind once for each."""
    nodes = [split("Rows", "rows"), more_than("Most", "if", "v", 1), assign("A", v="=1"), assign("B", v="=2")]
    links = ["Start Rows", "Rows Most", "Most:0 A", "Most:1 B", "A End", "B End"]
    found = imported(export([*nodes, gather("End", "v")], *links))

    messages = {each.source: each.message for each in found.report.entries if each.status == "approximated"}
    assert "once for each branch" in messages["connections.A.main[0][0]"]
    assert "once for each branch" in messages["connections.B.main[0][0]"]


def test_aggregation_of_items_that_may_be_none_is_approximated() -> None:
    several = imported(chain(split("Rows", "rows"), gather("End", "v")))
    one = imported(chain(assign("A", v="=1"), gather("End", "v")))

    reported = [
        [each.node for each in found.report.entries if "no item arrives" in each.message]
        for found in (several, one)
    ]
    assert reported == [["End"], []]


def test_response_to_a_webhook_is_made_once_of_all_items() -> None:
    respond = step("Answer", "respondToWebhook", respondWith="allIncomingItems")

    found = outputs(imported(chain(split("Rows", "rows"), assign("A", v="={{ $json.v }}"), respond)), ROWS)

    assert found["Answer"] == [[{"v": 1}, {"v": 2}, {"v": 3}]]


DATA = {
    "qty": "2",
    "price": 3,
    "half": 2.5,
    "tags": ["a", "b"],
    "none": None,
    "box": {"length": 9},
    "empty": [],
}


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("n_a", "={{ '5' * 2 }}", 10),
        ("n_a", "={{ $json.qty * $json.price }}", 6),
        ("n_a", "={{ Number('') }}", 0),
        ("n_a", "={{ $json.tags.length }}", 2),
        ("a", "={{ $json.qty * 2 }}", "4"),
        ("a", "={{ $json.half * 2 }}", "5"),
        ("a", "={{ $json.price }}", "3"),
        ("a", "={{ $json.none }}", None),
        ("a", "={{ $json.missing }}", None),
        ("a", "={{ $json.tags }}", '["a","b"]'),
        ("a", "={{ $json.empty ? 'yes' : 'no' }}", "yes"),
        ("a", "=Total: {{ $json.half * 2 }}", "Total: 5"),
        ("a", "=Tags: {{ $json.tags.concat(['c']).map(t => t) }}", "Tags: a,b,c"),
        ("a", "=None: {{ $json.missing }}", "None: "),
        ("a", "={{ $json.qty > 1 && $json.price < 4 }}", "true"),
    ],
)
def test_field_that_is_set_has_the_value_of_n8n_or_a_note(name: str, value: str, expected: Any) -> None:
    found = imported(chain(assign("Set", **{name: value})))
    notes = [each.message for each in found.report.entries if each.status != "carried"]

    assert notes == []
    assert outputs(found, DATA)["Set"] == [{name: expected}]


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ('={"a": {{ $json.none }}}', {"a": None}),
        ('={"a": {{ $json.tags }}}', {"a": ["a", "b"]}),
        ('={"a": {{ $json.tags.map(t => t) }}}', {"a": ["a", "b"]}),
        ('={"a": "{{ $json.qty }}", "b": {{ $json.half * 2 }}}', {"a": "2", "b": 5}),
        ("={{ ({a: $json.price}) }}", {"a": 3}),
    ],
)
def test_raw_fields_are_the_json_of_n8n(output: str, expected: Any) -> None:
    assert outputs(imported(chain(step("Set", "set", 3.4, mode="raw", jsonOutput=output))), DATA)["Set"] == [
        expected
    ]


def test_text_of_a_response_is_under_the_name_of_n8n() -> None:
    fetch = step("Post", "httpRequest", 4.2, url="https://api.example/1")
    fetch["parameters"]["options"] = {"response": {"response": {"responseFormat": "text"}}}

    found = outputs(imported(chain(fetch, assign("Set", a="={{ $json.data.got.v }}"))), {})

    assert found["Set"] == [{"a": "10"}]


Part = tuple[list[Node], list[str], str]
"""Nodes, the links between them, and the output by which items leave. The first node is the entry."""
Model = Callable[[list[int]], list[int]]


def one(node: Node) -> Part:
    return [node], [], node["name"]


def looped(name: str, node: Node) -> Part:
    return [loop(name), node], [f"{name}:1 {node['name']}", f"{node['name']} {name}"], f"{name}:0"


STEPS: dict[str, tuple[Callable[[str], Part], Model]] = {
    "add": (lambda name: one(assign(name, v="={{ $json.v + 1 }}")), lambda values: [each + 1 for each in values]),
    "request": (lambda name: one(request(name)), lambda values: [each * 10 for each in values]),
    "none": (lambda name: one(step(name, "noOp")), lambda values: values),
    "size": (lambda name: one(assign(name, v="={{ $input.all().length + $json.v }}")),
             lambda values: [each + len(values) for each in values]),
    "first": (lambda name: one(assign(name, v="={{ $input.first().json.v }}")),
              lambda values: values[:1] * len(values)),
    "once": (lambda name: one(once(assign(name, v="={{ $json.v + 1 }}"))),
             lambda values: [each + 1 for each in values[:1]]),
    "sort": (lambda name: one(order(name, "v")), lambda values: sorted(values, reverse=True)),
    "limit": (lambda name: one(step(name, "limit", maxItems=3)), lambda values: values[:3]),
    "unique": (lambda name: one(step(name, "removeDuplicates")), lambda values: list(dict.fromkeys(values))),
    "filter": (lambda name: one(more_than(name, "filter", "v", 4)), lambda values: [e for e in values if e > 4]),
    "if": (lambda name: ([more_than(name, "if", "v", 4)], [], f"{name}:0"),
           lambda values: [e for e in values if e > 4]),
    "gather": (lambda name: ([gather(name), split(f"{name}_again", "all")], [f"{name} {name}_again"], f"{name}_again"),
               lambda values: values),
    "loop": (lambda name: looped(name, assign(f"{name}_add", v="={{ $json.v + 1 }}")),
             lambda values: [each + 1 for each in values]),
    "loop request": (lambda name: looped(name, request(f"{name}_post")), lambda values: [each * 10 for each in values]),
}  # fmt: skip


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=6),
    st.lists(st.integers(0, 9), min_size=1, max_size=4),
)
def test_chain_of_nodes_gives_the_items_of_n8n(kinds: list[str], values: list[int]) -> None:
    expected = values
    nodes, links, last = [split("Rows", "rows")], ["Start Rows"], "Rows"
    for at, kind in enumerate(kinds):
        make, model = STEPS[kind]
        made, inner, leaving = make(f"{kind.replace(' ', '_')}{at}")
        nodes += made
        links += [f"{last} {made[0]['name']}", *inner]
        last = leaving
        expected = model(expected)
    source = export([*nodes, gather("End", "v")], *links, f"{last} End")

    found = outputs(imported(source), {"rows": [{"v": each} for each in values]})

    assert found["End"] == [{"v": expected}]
