"""An import keeps the meaning of its source, or reports what it does not keep.

What the source gives follows from the documentation of n8n and of the Amazon States Language.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from rune.documents.importers import Import, import_document
from rune.documents.importers.draft import Recorder
from rune.documents.importers.source import observed
from rune.nodes.registry import standard_catalogue
from tests.unit.importers.mocked import run_mocked
from tests.unit.importers.test_n8n_items import assign, export, gather, imported, loop, more_than, split, step


def keeping(name: str, **values: Any) -> dict[str, Any]:
    """A Set node that keeps the other fields of the item."""
    node = assign(name, **values)
    node["parameters"]["includeOtherFields"] = True
    return node


def ended(found: Import, payload: Any) -> tuple[str, dict[str, Any]]:
    """Run an import; return its status and the outputs of the nodes that ran."""
    assert [each for each in found.report.problems if each.severity == "error"] == []
    result, _ = run_mocked(found.document, payload, {}, {})
    return result["status"], {
        each["node_id"]: each.get("output") for each in result["nodes"] if each["status"] == "success"
    }


def messages(found: Import) -> list[str]:
    return [each.message for each in found.report.entries if each.status != "carried"]


# Branches that meet again


@pytest.mark.parametrize(("value", "label"), [(20, "0"), (1, "1")])
@pytest.mark.parametrize("outputs", [("If:0 Hi", "If:1 End"), ("If:1 End", "If:0 Hi")])
def test_node_behind_a_branch_and_its_router_gets_the_item_that_arrived(
    outputs: tuple[str, str], value: int, label: str
) -> None:
    nodes = [
        more_than("If", "if", "v", 15),
        keeping("Hi", v="={{ 0 }}"),
        keeping("End", label="={{ $json.v }}"),
    ]

    status, made = ended(imported(export(nodes, "Start If", *outputs, "Hi End")), {"v": value})

    assert (status, made["End"]) == ("completed", {"v": int(label), "label": label})


def test_items_behind_a_branch_and_its_router_are_those_that_arrived() -> None:
    nodes = [
        split("Rows", "rows"), more_than("If", "if", "v", 1), keeping("Hi", tag="hi"), keeping("End", done="yes"),
        gather("All"),
    ]  # fmt: skip
    source = export(nodes, "Start Rows", "Rows If", "If:0 Hi", "If:1 End", "Hi End", "End All")

    _, made = ended(imported(source), {"rows": [{"v": 1}, {"v": 2}]})

    assert made["All"] == {"all": [{"v": 1, "done": "yes"}, {"v": 2, "tag": "hi", "done": "yes"}]}


def test_items_that_leave_a_chain_from_two_branches_are_those_that_arrived() -> None:
    nodes = [split("Rows", "rows"), more_than("If", "if", "v", 1), keeping("Hi", tag="hi"), gather("All")]
    source = export(nodes, "Start Rows", "Rows If", "If:0 Hi", "If:1 All", "Hi All")

    _, made = ended(imported(source), {"rows": [{"v": 1}, {"v": 2}]})

    assert made["All"] == {"all": [{"v": 1}, {"v": 2, "tag": "hi"}]}


def test_merge_behind_both_outputs_of_a_router_has_the_item_once() -> None:
    nodes = [more_than("If", "if", "v", 15), step("Both", "merge", 3), gather("All")]
    source = export(nodes, "Start If", "If:0 Both", "If:1 Both", "Both All")
    source["connections"]["If"]["main"][1][0]["index"] = 1

    _, made = ended(imported(source), {"v": 20})

    assert made["All"] == {"all": [{"v": 20}]}


# Conditions


def numbers(operation: str, **options: Any) -> dict[str, Any]:
    rule = {
        "leftValue": "={{ $json.total }}", "rightValue": 7, "operator": {"type": "number", "operation": operation},
    }  # fmt: skip
    return step("If", "if", 2.2, conditions={"combinator": "and", "options": options, "conditions": [rule]})


@pytest.mark.parametrize("operation", ["equals", "notEquals", "gt", "exists"])
def test_strict_condition_on_a_value_of_another_type_ends_the_execution(operation: str) -> None:
    source = export([numbers(operation, caseSensitive=True, typeValidation="strict")], "Start If")

    assert ended(imported(source), {"total": "7"})[0] == "halted"
    assert ended(imported(source), {"total": 7})[0] == "completed"
    assert ended(imported(source), {"total": None})[0] == "completed"


def test_condition_that_converts_types_is_approximated() -> None:
    found = imported(export([numbers("equals", caseSensitive=True, typeValidation="loose")], "Start If"))

    assert messages(found) == [
        "n8n converts values to the type of the condition; here they are compared as they are"
    ]


# Switch


def chosen() -> dict[str, Any]:
    switch = step("Switch", "switch", 3.2, mode="expression", numberOutputs=2, output="={{ $json.v }}")
    nodes = [switch, assign("A", r="a"), assign("B", r="b")]
    return export(nodes, "Start Switch", "Switch:0 A", "Switch:1 B")


@pytest.mark.parametrize("value", [2, -1, "5", None, 0.5])
def test_switch_to_an_output_that_does_not_exist_ends_the_execution(value: Any) -> None:
    assert ended(imported(chosen()), {"v": value})[0] == "halted"


@pytest.mark.parametrize(("value", "node"), [(0, "A"), ("0", "A"), (1, "B"), ("1", "B")])
def test_switch_to_an_output_takes_it(value: Any, node: str) -> None:
    status, made = ended(imported(chosen()), {"v": value})

    assert status == "completed"
    assert {"A", "B"} & set(made) == {node}


# Steps that cannot be imported


def half_imported() -> list[dict[str, Any]]:
    rules: dict[str, Any] = {
        "values": [{"conditions": {"conditions": []}}, {"conditions": {"conditions": []}}]
    }
    switch = step("X", "switch", 3.2, rules=rules, options={"fallbackOutput": 1})
    looped = {**loop("X"), "parameters": {"options": {"reset": True}}}
    return [
        export([switch, assign("A", r="a")], "Start X", "X:0 A", "X:1 A"),
        export([looped, assign("A", r="a"), gather("End")], "Start X", "X:0 End", "X:1 A", "A X"),
        export(
            [{**loop("X"), "disabled": True}, assign("A", r="a"), gather("End")],
            "Start X",
            "X:0 End",
            "X:1 A",
            "A X",
        ),
    ]


@pytest.mark.parametrize("source", half_imported(), ids=["switch", "loop", "disabled loop"])
def test_step_that_is_refused_late_becomes_one_gap_of_a_valid_document(source: dict[str, Any]) -> None:
    found = imported(source)

    assert [each for each in found.report.problems if each.severity == "error"] == []
    gaps = [each for each in found.document["nodes"] if each["type"] == "fail" and each["id"] == "X"]
    assert [each["parameters"]["code"] for each in gaps] == ["NOT_IMPORTED"]


# Errors


def test_message_of_an_error_is_read_behind_an_error_output() -> None:
    stop = {**step("Call", "httpRequest", 4.2, url="https://api.example/"), "onError": "continueErrorOutput"}
    after = assign("Bad", text="={{ $json.error.message }}", same="={{ $json.error }}")
    found = imported(export([stop, after], "Start Call", "Call:1 Bad"))

    result, _ = run_mocked(found.document, {}, {"Call": {"fails": "HTTP_TIMEOUT"}}, {})

    made = {each["node_id"]: each.get("output") for each in result["nodes"]}
    assert made["Bad"] == {"text": "mocked failure", "same": "mocked failure"}
    assert "`error` of the item on the error output is the message of Rune's error, a text" in messages(found)


def test_other_field_of_an_error_is_refused_by_name() -> None:
    stop = {**step("Call", "httpRequest", 4.2, url="https://api.example/"), "onError": "continueErrorOutput"}
    found = imported(
        export([stop, assign("Bad", text="={{ $json.error.code }}")], "Start Call", "Call:1 Bad")
    )

    assert any("`error.code` of an item on an error output" in each for each in messages(found))


@pytest.mark.parametrize(
    "links",
    [("Call:0 End", "Call:1 End"), ("Call:1 Keep", "Keep End")],
    ids=["rejoin", "kept"],
)
def test_field_of_an_error_that_came_a_longer_way_is_refused(links: tuple[str, ...]) -> None:
    call = {**step("Call", "httpRequest", 4.2, url="https://api.example/"), "onError": "continueErrorOutput"}
    nodes = [call, keeping("Keep", a="1"), keeping("End", text="={{ $json.error.message }}")]

    found = imported(export(nodes, "Start Call", *links))

    assert any("`error.message` of an item on an error output" in each for each in messages(found))


# Schedules


@pytest.mark.parametrize(
    ("interval", "message"),
    [
        ({"field": "minutes", "minutesInterval": 45}, "the interval starts anew with each hour"),
        ({"field": "hours", "hoursInterval": 5}, "the interval starts anew with each day"),
        ({"field": "days", "daysInterval": 3}, "the interval starts anew with each month"),
        ({"field": "months", "monthsInterval": 5}, "the interval starts anew with each year"),
    ],
)
def test_uneven_interval_of_a_schedule_is_reported_with_where_it_begins_anew(
    interval: dict[str, Any], message: str
) -> None:
    nodes = [step("Tick", "scheduleTrigger", 1.2, rule={"interval": [interval]})]

    found = imported({"name": "x", "nodes": nodes, "connections": {}, "settings": {"timezone": "UTC"}})

    assert set(messages(found)) == {message}


# What an importer does not look at


def test_field_that_was_not_read_is_reported_though_an_entry_above_covers_it() -> None:
    source = observed({"rules": {"known": 1, "unknown": [{"deep": 2}], "nothing": None}})
    record = Recorder(source)
    assert source["rules"]["known"] == 1
    record.carried("rules", "nodes[0]")

    entries = record.finish()

    assert [(each.source, each.status) for each in entries] == [
        ("rules", "carried"),
        ("rules.unknown", "by_hand"),
    ]


@pytest.mark.parametrize(
    ("node", "path"),
    [
        (step("X", "splitInBatches", 3, batchSize="={{ $json.n }}"), "batchSize"),
        (step("X", "limit", maxItems=2, keep="={{ $json.keep }}"), "keep"),
        (step("X", "removeDuplicates", compare="allFields", operation="removeDuplicateInputItems",
              options={"disableDotNotation": "={{ $json.x }}"}), ""),
    ],
)  # fmt: skip
def test_expression_in_the_place_of_an_option_is_not_carried(node: dict[str, Any], path: str) -> None:
    found = imported(export([node], "Start X"))

    given = [
        each
        for each in found.report.entries
        if each.source.startswith("nodes[1]") and each.status == "by_hand"
    ]
    assert len(given) == 1
    assert not path or given[0].message == f"`{path}` is an expression, which has no counterpart there"


def test_merge_that_runs_once_is_not_carried() -> None:
    merge = {**step("Both", "merge", 3), "executeOnce": True}

    found = imported(export([merge], "Start Both"))

    assert messages(found) == ["a merge that runs once, for the first item, has no counterpart"]


def test_node_that_runs_once_for_each_batch_is_not_carried() -> None:
    inner = {**assign("A", v="={{ $json.v }}"), "executeOnce": True}
    nodes = [split("Rows", "rows"), loop("Loop", 2), inner, gather("End")]

    found = imported(export(nodes, "Start Rows", "Rows Loop", "Loop:0 End", "Loop:1 A", "A Loop"))

    gaps = [each.source for each in found.report.entries if each.status == "by_hand"]
    assert gaps == ["nodes[3]"]


def test_number_of_tries_that_is_no_number_is_not_carried() -> None:
    node = {
        **step("X", "httpRequest", 4.2, url="https://api.example/"),
        "retryOnFail": True,
        "maxTries": "={{ 5 }}",
    }

    found = imported(export([node], "Start X"))

    assert [each.source for each in found.report.entries if each.status == "by_hand"] == ["nodes[1].maxTries"]


def test_unknown_field_inside_of_a_condition_is_reported() -> None:
    node = numbers("equals", caseSensitive=True, typeValidation="strict")
    node["parameters"]["conditions"]["conditions"][0]["newOption"] = True

    found = imported(export([node], "Start If"))

    places = [each.source for each in found.report.entries if each.status == "by_hand"]
    assert places == ["nodes[1].parameters.conditions.conditions[0].newOption"]


# State machines


def mapped(**fields: Any) -> Import:
    body = {"StartAt": "I", "States": {"I": {"Type": "Pass", "End": True}}}
    state = {"Type": "Map", "Items": "{% $states.input.l %}", "ItemProcessor": body, "End": True, **fields}
    source = {"QueryLanguage": "JSONata", "StartAt": "M", "States": {"M": state}}
    return import_document(json.dumps(source), standard_catalogue())


@pytest.mark.parametrize(
    "fields",
    [
        {"MaxConcurrency": "{% $states.input.c %}"},
        {"ToleratedFailureCount": "{% $states.input.c %}"},
        {"ItemBatcher": {"MaxItemsPerBatch": "{% $states.input.c %}"}},
        {"ItemBatcher": {"MaxInputBytesPerBatch": 1000}},
    ],
)
def test_number_that_is_an_expression_is_not_carried(fields: dict[str, Any]) -> None:
    found = mapped(**fields)

    assert [each.source for each in found.report.entries if each.status == "by_hand"] == ["States.M"]
    assert not any(each["type"] == "split" for each in found.document["nodes"])


def test_number_that_is_written_as_an_expression_is_that_number() -> None:
    found = mapped(MaxConcurrency="{% 3 %}")

    splits = [each for each in found.document["nodes"] if each["type"] == "split"]
    assert [each["parameters"]["max_in_flight"] for each in splits] == [3]
