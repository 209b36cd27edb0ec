"""A text of a source document stays a text wherever it stands: no part of it becomes an expression."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import Any

import pytest

from rune.documents.importers import import_document
from rune.nodes.registry import standard_catalogue
from tests.unit.importers.mocked import run_mocked
from tests.unit.importers.test_n8n_items import export, step

TEXTS = (
    "{{ 1+1 }}", "{{", "}}", "$trigger", "$trigger.secret", "$$", "$json", "$Start.secret", "it's", 'a "quote"',
    "back\\slash", "\\n", "{% 1 %}", "tab\tline\n", "ünï 😀", "{{ \"{{\" }}", "null", "1", "a-b c",
)  # fmt: skip
SECRET = {"secret": "leaked"}

Place = tuple[Callable[[str], dict[str, Any]], Callable[[str], Any]]


def set_node(name: str, value: Any, version: float = 3.4) -> dict[str, Any]:
    if version < 3:
        values = {"string": [{"name": name, "value": value}]}
        return step("x", "set", version, keepOnlySet=True, values=values)
    listed = [{"id": "1", "name": name, "type": "string", "value": value}]
    return step("x", "set", version, assignments={"assignments": listed}, includeOtherFields=False)


def nested(text: str, value: Any) -> Any:
    """A field whose name may have dots, which denote nesting."""
    for part in reversed(text.split(".")):
        value = {part: value}
    return value


def request(**parameters: Any) -> dict[str, Any]:
    return step("x", "httpRequest", 4.2, url="https://api.example/", method="POST", **parameters)


def pairs(name: str, value: str) -> dict[str, Any]:
    return {"parameters": [{"name": name, "value": value}]}


OUTPUTS: dict[str, Place] = {
    "set name": (lambda t: set_node(t, "x"), lambda t: nested(t, "x")),
    "set value": (lambda t: set_node("a", t), lambda t: {"a": t}),
    "former set name": (lambda t: set_node(t, "x", 1), lambda t: nested(t, "x")),
    "former set value": (lambda t: set_node("a", t, 1), lambda t: {"a": t}),
    "set raw": (
        lambda t: step("x", "set", 3.4, mode="raw", jsonOutput=json.dumps({t: [t]})),
        lambda t: {t: [t]},
    ),
    "aggregate name": (
        lambda t: step("x", "aggregate", aggregate="aggregateAllItemData", destinationFieldName=t),
        lambda t: nested(t, [SECRET]),
    ),
    "condition": (
        lambda t: step("x", "if", 2.2, conditions={
            "combinator": "and", "options": {"caseSensitive": True, "typeValidation": "strict"},
            "conditions": [{"leftValue": t, "rightValue": t, "operator": {"type": "string", "operation": "equals"}}]}),
        lambda t: {"result": True},
    ),
}  # fmt: skip
CALLS: dict[str, Place] = {
    "header name": (
        lambda t: request(sendHeaders=True, headerParameters=pairs(t, "x")), lambda t: {"headers": {t: "x"}},
    ),
    "header value": (
        lambda t: request(sendHeaders=True, headerParameters=pairs("a", t)), lambda t: {"headers": {"a": t}},
    ),
    "query": (lambda t: request(sendQuery=True, queryParameters=pairs(t, t)), lambda t: {"query": {t: t}}),
    "body": (lambda t: request(sendBody=True, bodyParameters=pairs(t, t)), lambda t: {"body": {t: t}}),
    "json body": (
        lambda t: request(sendBody=True, specifyBody="json", jsonBody=json.dumps({t: t})),
        lambda t: {"body": {t: t}},
    ),
    "url": (lambda t: {**request(), "parameters": {"url": f"http://a/{t}"}}, lambda t: {"url": f"http://a/{t}"}),
    "workflow input": (
        lambda t: step("x", "executeWorkflow", 1.2, workflowId="Other", workflowInputs={"value": {t: t}}),
        lambda t: {"input": {t: t}},
    ),
}  # fmt: skip


def run_places(make: Callable[[str], dict[str, Any]]) -> tuple[dict[str, Any], Any]:
    """Run one node for each text beside the others; return the output and the calls of each."""
    nodes = [{**make(text), "name": f"N{at}"} for at, text in enumerate(TEXTS)]
    found = import_document(
        json.dumps(export(nodes, *(f"Start N{at}" for at in range(len(TEXTS))))), standard_catalogue()
    )
    assert [each for each in found.report.problems if each.severity == "error"] == []
    answers = {
        f"N{at}": {"status": 200, "headers": {}, "body": {}, "duration_ms": 1} for at in range(len(TEXTS))
    }
    result, mocks = run_mocked(found.document, SECRET, answers, {})
    assert result["status"] == "completed", result["error"]
    return {each["node_id"]: each.get("output") for each in result["nodes"]}, mocks.calls


@pytest.mark.parametrize("place", OUTPUTS)
def test_text_in_an_n8n_node_is_in_its_output_as_it_is(place: str) -> None:
    make, expected = OUTPUTS[place]

    outputs, _ = run_places(make)

    assert [outputs[f"N{at}"] for at in range(len(TEXTS))] == [expected(each) for each in TEXTS]


@pytest.mark.parametrize("place", CALLS)
def test_text_in_an_n8n_request_is_sent_as_it_is(place: str) -> None:
    make, expected = CALLS[place]

    _, calls = run_places(make)

    sent = [{key: calls[f"N{at}"][0][key] for key in expected(each)} for at, each in enumerate(TEXTS)]
    assert sent == [expected(each) for each in TEXTS]


def machine(states: list[dict[str, Any]], **fields: Any) -> dict[str, Any]:
    """States in a row."""
    names = [f"S{at}" for at in range(len(states))]
    links: list[dict[str, Any]] = [{"Next": after} for _, after in itertools.pairwise(names)]
    rows = zip(names, states, [*links, {"End": True}], strict=True)
    return {"StartAt": "S0", "States": {name: {**state, **link} for name, state, link in rows}, **fields}


@pytest.mark.parametrize(
    ("fields", "state"),
    [
        ({}, lambda t: {"Type": "Pass", "Result": {t: [t]}}),
        ({}, lambda t: {"Type": "Pass", "Parameters": {t: [t]}}),
        ({"QueryLanguage": "JSONata"}, lambda t: {"Type": "Pass", "Output": {t: [t]}}),
    ],
    ids=["result", "parameters", "output"],
)
def test_text_in_a_state_is_in_its_output_as_it_is(
    fields: dict[str, Any], state: Callable[[str], dict[str, Any]]
) -> None:
    # In JSONata a text between `{%` and `%}` is an expression.
    texts = [each for each in TEXTS if not each.startswith("{%")]
    source = machine([state(each) for each in texts], **fields)
    found = import_document(json.dumps(source), standard_catalogue())

    result, _ = run_mocked(found.document, SECRET, {}, {})

    assert result["status"] == "completed", result["error"]
    outputs = {each["node_id"]: each.get("output") for each in result["nodes"]}
    assert [outputs[f"S{at}"] for at in range(len(texts))] == [{each: [each]} for each in texts]


def test_name_of_a_field_in_a_canvas_document_is_set_as_it_is() -> None:
    names = [each for each in TEXTS if "." not in each]
    nodes = [
        {"id": "t", "type": "trigger", "data": {"label": "Start"}},
        {"id": "e", "type": "edit", "data": {"label": "End", "mode": "keep_only", "assignments": [
            {"name": each, "type": "string", "value": "x"} for each in names]}},
    ]  # fmt: skip
    source = {"nodes": nodes, "edges": [{"id": "a", "source": "t", "target": "e"}]}
    found = import_document(json.dumps(source), standard_catalogue())

    result, _ = run_mocked(found.document, SECRET, {}, {})

    outputs = {each["node_id"]: each.get("output") for each in result["nodes"]}
    assert outputs["End"] == dict.fromkeys(names, "x")
