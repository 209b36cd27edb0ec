"""Hazards G: expressions, evaluated in nodes of an embedded engine."""

from __future__ import annotations

from typing import Any

import pytest

from rune.errors import InvalidDocumentError
from rune.testing.harness import run_document
from tests.support.workflows import edit, node_entry, of_type, recording_registry, workflow


def _evaluate(expression: Any, payload: Any = None) -> Any:
    """Return the value of an expression, or the code of the failure."""
    document = workflow("start>out", out=of_type("output", value=expression))
    result = run_document(document, payload)
    return result["output"] if result["status"] == "completed" else result["error"]["code"]


def _branch(expression: str, payload: Any) -> str:
    """Return the branch that a conditional takes, or the code of the failure."""
    document = workflow(
        "start>i i>a:true i>b:false",
        i=of_type("conditional", expression=expression),
        a=edit(x=1),
        b=edit(x=2),
    )
    result = run_document(document, payload)
    if result["status"] != "completed":
        return str(result["error"]["code"])
    return "true" if node_entry(result, "a")["status"] == "success" else "false"


def test_h_g1_bad_reference_fails_node_before_call() -> None:
    # fault: g1: a parameter that cannot be resolved is passed on unresolved
    calls: list[str] = []
    document = workflow("start>c", c=of_type("t.call", fail="{{ $trigger.gone.deep }}"))
    result = run_document(document, {"x": 1}, registry=recording_registry(calls))
    assert (result["error"]["code"], calls) == ("EXPRESSION_ERROR", [])
    assert "fail" in result["error"]["message"]


@pytest.mark.parametrize(
    ("number", "text"), [(1_234_567, "1234567"), (10**15, "1000000000000000"), (1.5, "1.5")]
)
def test_h_g2_numbers_are_written_without_exponent(number: float, text: str) -> None:
    # fault: g2: numbers are formatted with %g
    assert _evaluate("id=$trigger.n", {"n": number}) == f"id={text}"


def test_h_g3_full_stop_after_reference_is_kept() -> None:
    # fault: g3: the path of a reference takes a trailing dot
    assert _evaluate("Hello $trigger.name.", {"name": "Ada"}) == "Hello Ada."


def test_h_g4_dash_separates_references() -> None:
    # fault: g4: a path takes dashes
    assert _evaluate("$trigger.x-$trigger.y", {"x": 1, "y": 2}) == "1-2"


def test_h_g5_data_is_not_parsed_as_expression() -> None:
    # fault: g5: data is inserted into a condition before it is parsed
    assert _branch("$trigger.role == 'admin'", {"role": "x' or 'a' == 'a"}) == "false"
    assert _branch("$trigger.role == 'admin'", {"role": "x or true"}) == "false"


def test_h_g6_null_and_booleans_compare_as_values() -> None:
    # fault: g6: references are written into the condition as text
    assert _branch("$trigger.a == null and $trigger.b", {"a": None, "b": True}) == "true"
    assert _branch("$trigger.b == false", {"b": False}) == "true"


@pytest.mark.parametrize("empty", [0, 0.0, -0.0, "", [], {}, None, False], ids=repr)
def test_h_g7_empty_values_count_as_false(empty: Any) -> None:
    # fault: g7: only null and false count as false
    assert _branch("$trigger.v", {"v": empty}) == "false"


def test_h_g8_operator_inside_quotes_is_text() -> None:
    # fault: g8: the condition is split at `==`
    assert _branch("$trigger.v == 'a == b and c'", {"v": "a == b and c"}) == "true"


@pytest.mark.parametrize("text", ["it's", 'say "hi"', "back\\slash", "}}", "{{ 1 }}", "\u0000"], ids=repr)
def test_h_g9_any_text_is_valid_data(text: str) -> None:
    # fault: g9: data is quoted into source text
    assert _branch("$trigger.v == $trigger.w", {"v": text, "w": text}) == "true"
    assert _evaluate("<{{ $trigger.v }}>", {"v": text}) == f"<{text}>"


def test_h_g10_resolved_data_is_not_resolved_again() -> None:
    # fault: g10: templates are resolved until nothing changes
    assert _evaluate("$trigger.v", {"v": "$trigger.secret", "secret": 1}) == "$trigger.secret"
    assert (
        _evaluate("v: {{ $trigger.v }}", {"v": "{{ $trigger.secret }}", "secret": 1})
        == "v: {{ $trigger.secret }}"
    )


def test_h_g11_text_is_compared_as_text() -> None:
    # fault: g11: both sides are converted to numbers where possible
    assert _branch("$trigger.a == $trigger.b", {"a": "007", "b": "7"}) == "false"
    assert _branch("$trigger.a == $trigger.b", {"a": "1", "b": 1}) == "false"


def test_h_g12_values_of_every_type_are_resolved() -> None:
    # fault: g12: only text values are resolved
    given = {"n": 1, "f": 1.5, "b": True, "z": None, "l": [1], "o": {"k": "v"}}
    assert _evaluate({name: f"$trigger.{name}" for name in given}, given) == given


def test_h_g13_contains_compares_elements() -> None:
    # fault: g13: a list is converted to text before it is searched
    assert _branch("$trigger.tags contains 'ad'", {"tags": ["admin", "x"]}) == "false"
    assert _branch("$trigger.tags contains 1", {"tags": [11, 2]}) == "false"
    assert _branch("$trigger.tags contains 2", {"tags": [11, 2]}) == "true"


@pytest.mark.parametrize(
    "attack",
    [
        "$trigger.__class__",
        "().__class__.__bases__",
        "(lambda: 1)()",
        "__import__('os')",
        "open('x')",
        "$trigger.v.format(1)",
        "''.join.__globals__",
        "[x for x in ().__class__.__mro__]",
        "f'{1}'",
        "(yield)",
        "x := 1",
    ],
)
def test_h_g14_expression_cannot_leave_sandbox(attack: str) -> None:
    # fault: g14: names with two underscores are allowed, and a missing key is read as an attribute
    try:
        outcome = _evaluate("{{ " + attack + " }}", {"v": "{}"})
    except InvalidDocumentError:
        return
    assert outcome == "EXPRESSION_ERROR"


@pytest.mark.parametrize(
    "bomb",
    [
        "'x' * 1000000000",
        "[0] * 1000000000",
        "9 ** 9 ** 9",
        "range(1000000000)",
        "[a for a in range(100000) for b in range(100000)]",
        "matches($trigger.v, '(a+)+$')",
        "replace($trigger.v, 'a', $trigger.v)",
    ],
)
def test_h_g15_expression_bomb_is_stopped(bomb: str) -> None:
    # fault: g15: the size of built values is not limited
    try:
        outcome = _evaluate("{{ " + bomb + " }}", {"v": "a" * 5_000 + "!"})
    except InvalidDocumentError:
        return
    assert outcome in ("EXPRESSION_ERROR", False)
