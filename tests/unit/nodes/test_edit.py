"""The `edit` node."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rune.core.definition.strict_json import MAX_INT, MIN_INT
from tests.unit.nodes.runner import error, output, run


def assign(*assignments: Any) -> dict[str, Any]:
    return {"assignments": [dict(zip(("name", "value", "type"), each, strict=False)) for each in assignments]}


def test_fields_are_set_on_payload() -> None:
    payload = {"n": 1, "user": {"name": "ada"}}
    parameters = assign(("user.age", 5), ("new.a.b", "$trigger.n"), ("new.a.c", 2))
    expected = {"n": 1, "user": {"name": "ada", "age": 5}, "new": {"a": {"b": 7, "c": 2}}}
    assert output(run("edit", parameters, payload=payload, trigger={"n": 7})) == expected


def test_inputs_are_not_modified() -> None:
    payload = {"user": {"name": "ada", "tags": {"a": 1}}, "list": [1]}
    before = copy.deepcopy(payload)
    shared = {"inner": {"x": 1}}
    inside = (("shared", "$trigger"), ("shared.inner.y", 2))
    parameters = assign(("user.tags.b", 2), ("user.name", "bob"), *inside)
    found = output(run("edit", parameters, payload=payload, trigger=shared))
    assert found["shared"] == {"inner": {"x": 1, "y": 2}}
    assert payload == before
    assert shared == {"inner": {"x": 1}}


def test_keep_only_ignores_payload() -> None:
    parameters = {"mode": "keep_only", **assign(("a", 1), ("b.c", "$trigger"))}
    for payload in ({"x": 1}, [1, 2], None, "text"):
        assert output(run("set", parameters, payload=payload, trigger="t")) == {"a": 1, "b": {"c": "t"}}


def test_from_replaces_payload() -> None:
    parameters = {"from": "$trigger.user", **assign(("age", "{{ 1 + 1 }}"))}
    assert output(run("edit", parameters, payload=5, trigger={"user": {"name": "ada"}})) == {
        "name": "ada",
        "age": 2,
    }


def test_values_are_resolved_before_assignment() -> None:
    parameters = assign(("a", "$json.b"), ("b", "$json.a"))
    assert output(run("edit", parameters, payload={"a": 1, "b": 2})) == {"a": 2, "b": 1}


def test_list_is_edited_per_element() -> None:
    parameters = assign(("twice", "{{ $item.v * 2 }}"), ("at", "$index"), ("by.who", "$trigger"))
    found = output(run("edit", parameters, payload=[{"v": 2}, {"v": 4}], trigger="ada"))
    assert found == [
        {"v": 2, "twice": 4, "at": 0, "by": {"who": "ada"}},
        {"v": 4, "twice": 8, "at": 1, "by": {"who": "ada"}},
    ]


def test_list_element_shadows_outer_item() -> None:
    scope = {"$item": "outer", "$index": 9}
    inner = run("edit", assign(("x", "$item.v")), payload=[{"v": 1}], scope=scope)
    assert output(inner) == [{"v": 1, "x": 1}]
    assert output(run("edit", assign(("x", "$item")), payload={}, scope=scope)) == {"x": "outer"}
    kept = {"mode": "keep_only", **assign(("x", "$item"))}
    assert output(run("edit", kept, payload=[{"v": 1}], scope=scope)) == {"x": "outer"}


def test_each_element_gets_own_uuid() -> None:
    found = output(run("edit", assign(("id", "{{ uuid() }}")), payload=[{}, {}, {}], scope={"@seed": "s"}))
    assert len({each["id"] for each in found}) == 3


def test_empty_list_stays_empty() -> None:
    assert output(run("edit", assign(("x", "$item.v")), payload=[])) == []


def test_payload_is_output_without_assignments() -> None:
    assert output(run("edit", {}, payload={"a": 1})) == {"a": 1}
    assert output(run("edit", {}, payload=[{"a": 1}])) == [{"a": 1}]
    assert output(run("edit", {"mode": "keep_only"}, payload={"a": 1})) == {}


@pytest.mark.parametrize(
    ("value", "type", "expected"),
    [
        ("42", "number", 42),
        (" -7 ", "number", -7),
        ("4.50", "number", 4.5),
        (".5e1", "number", 5.0),
        ("9007199254740993", "number", 9007199254740993),
        (7.5, "number", 7.5),
        (7, "string", "7"),
        (1e21, "string", "1e+21"),
        (12345678, "string", "12345678"),
        (True, "string", "true"),
        (None, "string", ""),
        ({"a": [1]}, "string", '{"a":[1]}'),
        ("true", "boolean", True),
        ("False ", "boolean", False),
        (0, "boolean", False),
        ("1", "boolean", True),
        ('{"a": [1, null]}', "json", {"a": [1, None]}),
        ("null", "json", None),
        ({"a": 1}, "json", {"a": 1}),
        ("[1, 2]", "array", [1, 2]),
        ([1], "array", [1]),
        ('{"a": 1}', "object", {"a": 1}),
        ({"a": 1}, "object", {"a": 1}),
        (7, None, 7),
    ],
)
def test_type_converts_value(value: Any, type: str | None, expected: Any) -> None:
    found = output(run("edit", assign(("x", "$trigger", type)), payload={}, trigger=value))["x"]
    assert found == expected
    assert found.__class__ is expected.__class__


@pytest.mark.parametrize(
    ("value", "type"),
    [
        ("", "number"),
        ("4 2", "number"),
        ("0x10", "number"),
        ("1_000", "number"),
        ("٣", "number"),
        ("nan", "number"),
        ("Infinity", "number"),
        ("1e999", "number"),
        (True, "number"),
        (None, "number"),
        ([1], "number"),
        ("yes", "boolean"),
        (2, "boolean"),
        (None, "boolean"),
        ("{", "json"),
        ("NaN", "json"),
        ('{"a": 1}', "array"),
        (5, "array"),
        ("[1]", "object"),
        (None, "object"),
    ],
)
def test_failed_conversion_fails_with_path(value: Any, type: str) -> None:
    found = error(run("edit", assign(("y", 1), ("x", "$trigger", type)), payload={}, trigger=value))
    assert found.code == "CONVERSION_FAILED"
    assert found.message.startswith("parameters.assignments[1].value: ")


@given(st.integers(-(10**40), 10**40))
def test_integers_are_converted_exactly(number: int) -> None:
    outcome = run("edit", assign(("x", str(number), "number")), payload={})
    if MIN_INT <= number <= MAX_INT:
        assert output(outcome) == {"x": number}
    else:
        assert error(outcome).code == "LIMIT_EXCEEDED"


@pytest.mark.parametrize("payload", ["text", 5, None, [{"a": 1}, 2], [[]]])
def test_non_object_input_fails(payload: Any) -> None:
    assert error(run("edit", assign(("x", 1)), payload=payload)).code == "NOT_AN_OBJECT"


def test_path_through_non_object_fails() -> None:
    found = error(run("edit", assign(("user.name.first", 1)), payload={"user": {"name": "ada"}}))
    assert found.code == "NOT_AN_OBJECT"
    assert "`user.name`" in found.message


@pytest.mark.parametrize("name", ["a..b", ".a", "a."])
def test_empty_path_segment_fails(name: str) -> None:
    assert error(run("edit", assign((name, 1)), payload={})).code == "BAD_PARAMETER"


def test_computed_type_is_validated() -> None:
    found = error(run("edit", assign(("x", 1, "{{ $trigger }}")), payload={}, trigger="date"))
    assert found.code == "BAD_PARAMETER"
    assert found.message.startswith("parameters.assignments[0].type")


def test_h_g1_unresolved_value_fails_with_path() -> None:
    # Red if an unresolved value is kept as text.
    found = error(run("edit", assign(("a", 1), ("b", "$trigger.nope")), payload={}, trigger={}))
    assert found.code == "EXPRESSION_ERROR"
    assert found.message.startswith("parameters.assignments[1].value: $trigger.nope")


def test_failing_element_is_named() -> None:
    found = error(run("edit", assign(("x", "$item.v")), payload=[{"v": 1}, {}]))
    assert "$item.v" in found.message
    assert "element 1" in found.message


JSON_KEYS = st.text("abc", min_size=1, max_size=2)
INTEGERS = st.integers(MIN_INT, MAX_INT)
INNER = st.dictionaries(JSON_KEYS, INTEGERS, max_size=3)
OBJECTS = st.dictionaries(JSON_KEYS, INTEGERS | INNER, max_size=4)


@given(OBJECTS, st.lists(JSON_KEYS, min_size=1, max_size=3), INTEGERS)
def test_only_assigned_path_changes(payload: dict[str, Any], path: list[str], value: int) -> None:
    before = copy.deepcopy(payload)
    outcome = run("edit", assign((".".join(path), value)), payload=payload)
    assert payload == before
    target: Any = payload
    for key in path[:-1]:
        target = target.get(key, {}) if isinstance(target, dict) else None
    if not isinstance(target, dict):
        assert error(outcome).code == "NOT_AN_OBJECT"
        return
    found = output(outcome)
    assert {key: each for key, each in found.items() if key != path[0]} == {
        key: each for key, each in payload.items() if key != path[0]
    }
    for key in path:
        found = found[key]
    assert found == value
