"""Loading, expansion and comparison of cases detect every deviation."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rune.testing.expectations import matches
from tests.acceptance.conformance.case import Case, expand, load
from tests.acceptance.conformance.expectations import Calls, Mail, Observation, deviations


def result(**fields: Any) -> dict[str, Any]:
    """A complete result document with some fields changed."""
    empty: dict[str, Any] = {
        "execution_id": "e1",
        "workflow_id": "w",
        "status": "completed",
        "error": None,
        "output": {"n": 1},
        "context": {"$trigger": {}, "$a": {"n": 1}},
        "nodes": [node("a", output={"n": 1})],
        "started_at": "2026-01-01T00:00:00Z",
        "completed_at": "2026-01-01T00:00:01Z",
        "total_duration_ms": 1000,
    }
    return empty | fields


def node(node_id: str, *index: int, **fields: Any) -> dict[str, Any]:
    lineage = [{"split_node_id": "s", "branch_id": "b", "item_index": at, "total_items": 9} for at in index]
    return {
        "node_id": node_id,
        "lineage": lineage,
        "status": "success",
        "attempts": 1,
        "error": None,
    } | fields


def deviations_of(expect: dict[str, Any], printed: Any, exit_code: int = 0, **observed: Any) -> list[str]:
    case = Case(name="c", about="", covers=(), expect=expect, document={})
    text = printed if isinstance(printed, str) else json.dumps(printed)
    return deviations(case, Observation(exit_code=exit_code, stdout=text, **observed))


def test_load_returns_all_cases() -> None:
    cases = load()

    assert len(cases) == 145
    assert all(case.about and case.covers and case.expect for case in cases)


def test_workflow_source_contains_stub_url() -> None:
    case = Case(name="c", about="", covers=(), expect={}, document={"url": "{{base_url}}/x"})

    assert json.loads(case.workflow_source("http://stub")) == {"url": "http://stub/x"}


def test_input_blob_has_exact_size() -> None:
    case = Case(name="c", about="", covers=(), expect={}, document={}, input_blob_bytes=1000)

    assert len(case.input_source()) == 1000
    assert set(json.loads(case.input_source())) == {"blob"}


def test_expand_nests_repeats() -> None:
    inner = {
        "<repeat>": {"var": "j", "count": 2, "item": {"at": "<i*20+j>", "text": "n<i+1>-<j>", "k<j>": "<k>"}}
    }
    value = [{"<repeat>": {"count": 2, "item": inner}}, "last"]

    assert expand(value) == [
        {"at": 0, "text": "n1-0", "k0": "<k>"},
        {"at": 1, "text": "n1-1", "k1": "<k>"},
        {"at": 20, "text": "n2-0", "k0": "<k>"},
        {"at": 21, "text": "n2-1", "k1": "<k>"},
        "last",
    ]


def test_expand_keeps_angle_brackets_outside_repeat() -> None:
    assert expand({"a": ["<5>", "<i>", "1 <b> 2"]}) == {"a": ["<5>", "<i>", "1 <b> 2"]}


@pytest.mark.parametrize(
    ("expected", "actual", "equal"),
    [
        (1, 1.0, True),
        (1, True, False),
        (False, 0, False),
        (True, True, True),
        ("1", 1, False),
        (None, None, True),
        ([1, 2], [1, 2], True),
        ([1, 2], [2, 1], False),
        ([1], [1, 2], False),
        ({"a": 1}, {"a": 1, "b": 2}, False),
        ({"a": 1}, [], False),
        ("<any>", None, True),
        ("<string>", "x", True),
        ("<string>", "", False),
        ("<string>", 3, False),
        ("<number>", 0.5, True),
        ("<number>", True, False),
        ({"<subset>": {"a": "<any>"}}, {"a": 1, "b": 2}, True),
        ({"<subset>": {"a": 1}}, {"b": 2}, False),
        ({"<subset>": {}}, [], False),
        ({"<one_of>": [1, {"a": "<string>"}]}, {"a": "x"}, True),
        ({"<one_of>": [1, 2]}, 3, False),
        ({"<contains>": ["ab", "cd"]}, "xabcd", True),
        ({"<contains>": ["ab", "cd"]}, "xab", False),
        ({"<contains>": ["é"]}, {"k": "é"}, True),
    ],
)
def test_matches_compares_json_with_matchers(expected: Any, actual: Any, equal: bool) -> None:
    assert matches(expected, actual) is equal


def test_expected_result_has_no_deviations() -> None:
    expect = {
        "status": "completed",
        "exit_code": [0, 1],
        "completions": 1,
        "output": {"n": 1},
        "context": {"$a": {"n": 1}},
        "context_absent": ["$b"],
        "nodes": [{"node_id": "a", "status": "success", "attempts": 1, "output": {"n": 1}}],
        "runs": {"a": 1},
        "absent_nodes": ["b"],
        "http_calls": [{"path": "/x", "count": 3, "max_concurrent": 2, "min_concurrent": 2}],
        "mails": [{"rcpt": ["a@b.c"], "contains": ["Hi"]}],
        "mails_never": ["Bcc"],
    }

    found = deviations_of(
        expect, result(), calls={"/x": Calls(3, 2)}, mails=(Mail(recipients=("a@b.c",), raw="Subject: Hi"),)
    )

    assert found == []


@pytest.mark.parametrize(
    ("expect", "changed"),
    [
        ({"status": "failed"}, {}),
        ({"exit_code": 1}, {}),
        ({"output": {"n": 2}}, {}),
        ({"error": {"<subset>": {"code": "X"}}}, {}),
        ({"context": {"$a": {"n": 2}}}, {}),
        ({"context": {"$b": "<any>"}}, {}),
        ({"context_absent": ["$a"]}, {}),
        ({"nodes": [{"node_id": "a", "index": [0], "status": "success"}]}, {}),
        ({"nodes": [{"node_id": "a", "status": "failed"}]}, {}),
        ({"nodes": [{"node_id": "a", "attempts": 2}]}, {}),
        ({"nodes": [{"node_id": "a", "output": {}}]}, {}),
        ({"nodes": [{"node_id": "a", "error_code": ["X", "Y"]}]}, {}),
        ({"nodes": [{"node_id": "a", "error_contains": ["boom"]}]}, {}),
        ({"runs": {"a": 2}}, {}),
        ({"absent_nodes": ["a"]}, {}),
        ({"error_contains": ["nowhere"]}, {}),
        ({"problems": [{"path": "nodes"}]}, {}),
        ({"http_calls": [{"path": "/y", "count": 1}]}, {}),
        ({"http_calls": [{"path": "/x", "max_concurrent": 1}]}, {}),
        ({"http_calls": [{"path": "/x", "min_concurrent": 3}]}, {}),
        ({"mails": [{"rcpt": ["x@b.c"]}]}, {}),
        ({"mails": [{"contains": ["Bye"]}]}, {}),
        ({"mails_never": ["\nBcc: x"]}, {}),
        ({}, {"status": "running"}),
        ({}, {"nodes": [node("a", 1), node("a", 1)]}),
    ],
)
def test_unexpected_result_has_one_deviation(expect: dict[str, Any], changed: dict[str, Any]) -> None:
    mail = Mail(recipients=("a@b.c",), raw="Subject: Hi\r\nBcc: x")

    found = deviations_of(expect, result(**changed), calls={"/x": Calls(3, 2)}, mails=(mail,))

    assert len(found) == 1, found


def test_result_with_missing_field_deviates() -> None:
    printed = result()
    del printed["total_duration_ms"]

    assert deviations_of({}, printed) == ["the result lacks ['total_duration_ms']"]


@pytest.mark.parametrize("text", ["", "{} {}", "[]", "log line\n{}"])
def test_stdout_that_is_not_one_json_object_deviates(text: str) -> None:
    assert len(deviations_of({}, text)) == 1


def test_rejection_needs_complete_problems() -> None:
    problem = {
        "path": "nodes[1].type",
        "code": "UNKNOWN_TYPE",
        "message": "No type 'teleport'.",
        "hint": "Use a known one.",
    }
    expect = {"exit_code": 2, "problems": [{"path": "nodes[1]", "contains": ["TELEPORT"]}]}

    assert deviations_of(expect, {"status": "invalid", "problems": [problem]}, exit_code=2) == []
    assert (
        deviations_of(
            expect, {"status": "invalid", "problems": [problem | {"path": "nodes[2]"}]}, exit_code=2
        )
        != []
    )
    assert deviations_of({}, {"status": "invalid", "problems": []}, exit_code=2) == [
        "a rejection lists no problem"
    ]
    del problem["hint"]
    assert len(deviations_of({}, {"status": "invalid", "problems": [problem]}, exit_code=2)) == 1
