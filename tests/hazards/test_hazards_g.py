"""Hazards G: expressions, through a node of the engine."""

from __future__ import annotations

from typing import Any

import pytest

from rune.errors import InvalidDocumentError
from tests.hazards.building import counting, entry, kind, ran, sets, value, workflow


def _branch(expression: str, payload: Any) -> str:
    """Which way a conditional goes."""
    document = workflow(
        "start>i i>a:true i>b:false", i=kind("conditional", expression=expression), a=sets(x=1), b=sets(x=2)
    )
    told = ran(document, payload)
    if told["status"] != "completed":
        return str(told["error"]["code"])
    return "true" if entry(told, "a")["status"] == "success" else "false"


def test_h_g1_one_bad_reference_fails_the_node_and_nothing_is_sent() -> None:
    # fault: g1: a parameter that cannot be resolved is passed on as it stands
    calls: list[str] = []
    document = workflow("start>c", c=kind("t.call", fail="{{ $trigger.gone.deep }}"))
    told = ran(document, {"x": 1}, registry=counting(calls))
    assert (told["error"]["code"], calls) == ("EXPRESSION_ERROR", [])
    assert "fail" in told["error"]["message"]


@pytest.mark.parametrize(
    ("number", "text"), [(1_234_567, "1234567"), (10**15, "1000000000000000"), (1.5, "1.5")]
)
def test_h_g2_numbers_are_written_out(number: float, text: str) -> None:
    # fault: g2: numbers are formatted with %g
    assert value("id=$trigger.n", {"n": number}) == f"id={text}"


def test_h_g3_a_full_stop_behind_a_reference_stays() -> None:
    # fault: g3: the path of a reference takes a trailing dot
    assert value("Hello $trigger.name.", {"name": "Ada"}) == "Hello Ada."


def test_h_g4_a_dash_between_references_is_a_dash() -> None:
    # fault: g4: a path takes dashes
    assert value("$trigger.x-$trigger.y", {"x": 1, "y": 2}) == "1-2"


def test_h_g5_data_is_never_read_as_an_expression() -> None:
    # fault: g5: a condition is filled in before it is parsed
    assert _branch("$trigger.role == 'admin'", {"role": "x' or 'a' == 'a"}) == "false"
    assert _branch("$trigger.role == 'admin'", {"role": "x or true"}) == "false"


def test_h_g6_null_and_booleans_are_values_like_others() -> None:
    # fault: g6: references are written into the condition as text
    assert _branch("$trigger.a == null and $trigger.b", {"a": None, "b": True}) == "true"
    assert _branch("$trigger.b == false", {"b": False}) == "true"


@pytest.mark.parametrize("nothing", [0, 0.0, -0.0, "", [], {}, None, False], ids=repr)
def test_h_g7_what_is_nothing_counts_as_false(nothing: Any) -> None:
    # fault: g7: only null and false count as false
    assert _branch("$trigger.v", {"v": nothing}) == "false"


def test_h_g8_an_operator_inside_quotes_is_text() -> None:
    # fault: g8: the condition is split at `==`
    assert _branch("$trigger.v == 'a == b and c'", {"v": "a == b and c"}) == "true"


@pytest.mark.parametrize("text", ["it's", 'say "hi"', "back\\slash", "}}", "{{ 1 }}", "\u0000"], ids=repr)
def test_h_g9_any_text_may_be_data(text: str) -> None:
    # fault: g9: data is quoted into source text
    assert _branch("$trigger.v == $trigger.w", {"v": text, "w": text}) == "true"
    assert value("<{{ $trigger.v }}>", {"v": text}) == f"<{text}>"


def test_h_g10_resolved_data_is_not_resolved_again() -> None:
    # fault: g10: templates are resolved until nothing changes
    assert value("$trigger.v", {"v": "$trigger.secret", "secret": 1}) == "$trigger.secret"
    assert (
        value("v: {{ $trigger.v }}", {"v": "{{ $trigger.secret }}", "secret": 1})
        == "v: {{ $trigger.secret }}"
    )


def test_h_g11_text_is_compared_as_text() -> None:
    # fault: g11: both sides are made numbers where they can be
    assert _branch("$trigger.a == $trigger.b", {"a": "007", "b": "7"}) == "false"
    assert _branch("$trigger.a == $trigger.b", {"a": "1", "b": 1}) == "false"


def test_h_g12_values_of_every_type_arrive() -> None:
    # fault: g12: only text is resolved
    given = {"n": 1, "f": 1.5, "b": True, "z": None, "l": [1], "o": {"k": "v"}}
    assert value({name: f"$trigger.{name}" for name in given}, given) == given


def test_h_g13_contains_looks_for_elements() -> None:
    # fault: g13: a list is made text before it is searched
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
def test_h_g14_there_is_no_way_out_of_an_expression(attack: str) -> None:
    # fault: g14: names with two underscores are let through, and a missing key is an attribute
    try:
        told = value("{{ " + attack + " }}", {"v": "{}"})
    except InvalidDocumentError:
        return
    assert told == "EXPRESSION_ERROR"


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
def test_h_g15_bombs_are_defused(bomb: str) -> None:
    # fault: g15: built values are not counted
    try:
        told = value("{{ " + bomb + " }}", {"v": "a" * 5_000 + "!"})
    except InvalidDocumentError:
        return
    assert told in ("EXPRESSION_ERROR", False)
