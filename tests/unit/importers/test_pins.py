"""Pinned data of n8n exports becomes the input and the mocks of a test that `rune test` runs."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from rune.documents.importers import Import, import_document
from rune.nodes.registry import standard_catalogue
from rune.testing.cases import load_cases, run_case

BASE = "n8n-nodes-base."


def step(name: str, kind: str, **parameters: Any) -> dict[str, Any]:
    return {
        "name": name,
        "type": BASE + kind,
        "typeVersion": 3.4,
        "position": [0, 0],
        "parameters": parameters,
    }


def assign(name: str, **values: str) -> dict[str, Any]:
    listed = [
        {"id": key, "name": key, "type": "string" if value.startswith("=Hello") else "number", "value": value}
        for key, value in values.items()
    ]
    return step(name, "set", assignments={"assignments": listed})


def export(*nodes: dict[str, Any], pins: dict[str, Any]) -> dict[str, Any]:
    """A chain of nodes behind a trigger, with pinned data."""
    chain = [step("Start", "manualTrigger"), *nodes]
    links = {
        src["name"]: {"main": [[{"node": dst["name"], "type": "main", "index": 0}]]}
        for src, dst in itertools.pairwise(chain)
    }
    return {"name": "Pinned", "nodes": chain, "connections": links, "pinData": pins}


def imported(source: dict[str, Any]) -> Import:
    found = import_document(json.dumps(source), standard_catalogue())
    assert [each for each in found.report.problems if each.severity == "error"] == []
    return found


def deviations(found: Import, folder: Path, **expected: Any) -> tuple[str, ...]:
    """Run the test of an import as `rune test` does, with more expectations; return what it reports."""
    test = {**found.test, "document": found.document}
    test["expect"] = {**test["expect"], **expected}
    path = folder / "test.json"
    path.write_text(json.dumps(test), encoding="utf-8")
    (case,) = load_cases(path)
    return run_case(case, folder).deviations


def statuses(found: Import) -> dict[str, str]:
    """What the report says about pinned data, by path."""
    return {each.source: each.status for each in found.report.entries if each.source.startswith("pinData")}


def test_pins_of_a_trigger_and_of_a_request_are_the_input_and_a_mock(tmp_path: Path) -> None:
    found = imported(
        export(
            step("Fetch", "httpRequest", url="=https://shop.example/{{ $json.sku }}"),
            assign("Double", price="={{ $json.price * 2 }}"),
            pins={"Start": [{"json": {"sku": "a-7"}}], "Fetch": [{"json": {"price": 7}}]},
        )
    )

    assert found.test == {
        "case": "pinned data of Pinned",
        "input": {"sku": "a-7"},
        "mocks": {"Fetch": {"returns": {"status": 200, "headers": {}, "body": {"price": 7}}}},
        "expect": {"status": "completed"},
    }
    assert statuses(found) == {"pinData.Start": "carried", "pinData.Fetch": "carried"}
    called = {"<subset>": {"url": "https://shop.example/a-7"}}
    calls = [{"node_id": "Fetch", "count": 1, "parameters": called}]
    assert deviations(found, tmp_path, output={"Double": {"price": 14}}, calls=calls) == ()
    assert deviations(found, tmp_path, output={"Double": {"price": 15}}) != ()


def test_pinned_list_of_a_request_is_its_body(tmp_path: Path) -> None:
    found = imported(
        export(
            step("Fetch", "httpRequest", url="https://shop.example"),
            assign("Double", price="={{ $json.price * 2 }}"),
            pins={"Fetch": [{"json": {"price": 7}}, {"price": 8}]},
        )
    )

    assert found.test["mocks"]["Fetch"]["returns"]["body"] == [{"price": 7}, {"price": 8}]
    nodes = [{"node_id": "Double_results", "output": [{"price": 14}, {"price": 16}]}]
    assert deviations(found, tmp_path, nodes=nodes) == ()


def test_pinned_full_response_is_the_output_of_the_request(tmp_path: Path) -> None:
    options = {"response": {"response": {"fullResponse": True}}}
    found = imported(
        export(
            step("Fetch", "httpRequest", url="https://shop.example", options=options),
            assign("Code", status="={{ $json.statusCode }}", price="={{ $json.body.price }}"),
            pins={"Fetch": [{"json": {"statusCode": 404, "headers": {"a": "b"}, "body": {"price": 7}}}]},
        )
    )

    assert deviations(found, tmp_path, output={"Code": {"status": 404, "price": 7}}) == ()


def test_pins_of_a_node_that_runs_per_item_answer_by_item(tmp_path: Path) -> None:
    found = imported(
        export(
            step("Lines", "splitOut", fieldToSplitOut="lines"),
            step("Fetch", "httpRequest", url="=https://shop.example/{{ $json.sku }}"),
            assign("Double", price="={{ $json.price * 2 }}"),
            pins={
                "Start": [{"json": {"lines": [{"sku": "a"}, {"sku": "b"}]}}],
                "Fetch": [{"json": {"price": 7}}, {"json": {"price": 8}}],
            },
        )
    )

    assert set(found.test["mocks"]["Fetch"]["items"]) == {"0", "1"}
    nodes = [{"node_id": "Fetch_results", "output": [{"price": 14}, {"price": 16}]}]
    assert deviations(found, tmp_path, nodes=nodes) == ()


def test_pinned_step_that_could_not_be_imported_does_not_fail_the_test(tmp_path: Path) -> None:
    found = imported(
        export(
            step("Total", "code", jsCode="return 1"),
            assign("Greet", text="=Hello {{ $json.name }}"),
            pins={"Total": [{"json": {"name": "Ada"}}]},
        )
    )

    assert deviations(found, tmp_path, output={"Greet": {"text": "Hello Ada"}}) == ()


def test_pinned_items_of_a_list_node_are_its_items(tmp_path: Path) -> None:
    found = imported(
        export(
            step("Lines", "splitOut", fieldToSplitOut="lines"),
            step("First", "limit", maxItems=1),
            pins={"Lines": [{"json": {"n": 1}}, {"json": {"n": 2}}]},
        )
    )

    assert found.test["mocks"] == {"Lines": {"returns": {"items": [{"n": 1}, {"n": 2}]}}}
    assert (
        deviations(
            found, tmp_path, nodes=[{"node_id": "First", "output": {"<subset>": {"items": [{"n": 1}]}}}]
        )
        == ()
    )


@pytest.mark.parametrize(
    ("nodes", "pins", "reason"),
    [
        ([step("Same", "noOp")], {"Same": [{"json": {"a": 1}}]}, "passes on what an earlier node gives"),
        ([], {"Start": [{"json": {"a": 1}}, {"json": {"a": 2}}]}, "an execution has one start payload"),
        (
            [assign("One", a="1")],
            {"One": [{"json": {"a": 1}}, {"json": {"a": 2}}]},
            "several items cannot be the output",
        ),
    ],
)
def test_pins_that_no_output_stands_for_are_by_hand_and_kept(
    nodes: list[dict[str, Any]], pins: dict[str, Any], reason: str
) -> None:
    found = imported(export(*nodes, pins=pins))

    (entry,) = [each for each in found.report.entries if each.source.startswith("pinData")]
    assert (entry.status, reason in entry.message) == ("by_hand", True)
    assert found.document["metadata"]["n8n"]["pinData"] == pins
    assert found.test == {}


def test_file_of_a_pinned_item_is_by_hand() -> None:
    pins = {"One": [{"json": {"a": 1}, "binary": {"data": {"mimeType": "text/plain", "data": "aGk="}}}]}

    found = imported(export(assign("One", a="1"), pins=pins))

    assert statuses(found) == {"pinData.One": "carried", "pinData.One[0].binary": "by_hand"}
