"""Values are checked against schemas as `jsonschema` does, and never with more work than the limit."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from rune.core.definition import problems as codes
from rune.core.expr import ExpressionError, Meter
from rune.documents.json_schema import MAX_CHECK_S, MAX_SCHEMAS_S, check_schema, check_value
from rune.documents.value_schema import Check, UnusableSchemaError, unusable_parts

Schema = dict[str, Any]
SLACK = 4.0
"""How many times its estimate a check may take: estimates are made for a slow core."""

SCALARS = st.sampled_from([None, True, False, 0, 1, 1.0, -3, 2.5, 7, "", "a", "b", "ab", "a1", "zz"])
NAMES = st.sampled_from(["a", "b", "ab", "x1", "zz"])
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=5), st.dictionaries(NAMES, inner, max_size=4)),
    max_leaves=12,
)
TYPES = st.sampled_from(["null", "boolean", "integer", "number", "string", "array", "object"])
SIZES = st.integers(0, 3)
REFERENCES = st.sampled_from(["#/$defs/a", "#/$defs/b", "#/$defs/c", "#c", "#"])
LEAVES: dict[str, st.SearchStrategy[Any]] = {
    "type": st.one_of(TYPES, st.lists(TYPES, min_size=1, max_size=3, unique=True)),
    "enum": st.lists(VALUES, max_size=4),
    "const": VALUES,
    "minimum": st.integers(-2, 3),
    "maximum": st.integers(-2, 8),
    "exclusiveMinimum": st.integers(-2, 3),
    "exclusiveMaximum": st.integers(-2, 8),
    "multipleOf": st.sampled_from([1, 2, 0.5]),
    "minLength": SIZES,
    "maxLength": SIZES,
    "pattern": st.sampled_from(["^a", "[0-9]", "z{2}"]),
    "minItems": SIZES,
    "maxItems": SIZES,
    "uniqueItems": st.booleans(),
    "minProperties": SIZES,
    "maxProperties": SIZES,
    "required": st.lists(NAMES, max_size=2, unique=True),
    "dependentRequired": st.dictionaries(NAMES, st.lists(NAMES, max_size=2, unique=True), max_size=2),
    "minContains": SIZES,
    "maxContains": SIZES,
    "$ref": REFERENCES,
    "$dynamicRef": st.just("#c"),
    "unknown": VALUES,
}


def _larger(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    several, named = st.lists(inner, min_size=1, max_size=3), st.dictionaries(NAMES, inner, max_size=3)
    applied: dict[str, st.SearchStrategy[Any]] = {
        **dict.fromkeys(("allOf", "anyOf", "oneOf", "prefixItems"), several),
        **dict.fromkeys(("not", "if", "then", "else", "items", "contains"), inner),
        **dict.fromkeys(("additionalProperties", "propertyNames", "unevaluatedItems"), inner),
        **dict.fromkeys(("properties", "dependentSchemas"), named),
        "patternProperties": st.dictionaries(st.sampled_from(["^a", "[0-9]"]), inner, max_size=2),
    }
    return _some(LEAVES | applied)


def _some(keywords: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[Schema]:
    names = st.lists(st.sampled_from(sorted(keywords)), max_size=3, unique=True)
    return names.flatmap(lambda found: st.fixed_dictionaries({each: keywords[each] for each in found}))


SUBSCHEMAS: st.SearchStrategy[Any] = st.recursive(
    st.one_of(st.booleans(), _some(LEAVES)), _larger, max_leaves=6
)
OBJECTS = SUBSCHEMAS.filter(lambda each: isinstance(each, dict))


@st.composite
def schemas(draw: st.DrawFn) -> Schema:
    root = dict(draw(OBJECTS))
    defs = {"a": draw(SUBSCHEMAS), "b": draw(SUBSCHEMAS), "c": {**draw(OBJECTS), "$dynamicAnchor": "c"}}
    return {**root, "$defs": defs}


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(schemas(), VALUES)
@example({"multipleOf": 0.1}, 0.5)
@example({"prefixItems": [{"const": 1}], "items": False}, [1.0, 2])
@example({"enum": [[0], {"a": [1]}, 1]}, {"a": [1.0]})
@example({"enum": [1]}, True)
@example({"$ref": "#/$defs/x~1y%25/0", "$defs": {"x/y%": [{"type": "null"}]}}, 1)
@example(
    {
        "$defs": {"a": {"$id": "n", "$ref": "#/$defs/b", "$defs": {"b": {"type": "null"}}}},
        "$ref": "#/$defs/a",
    },
    1,
)
@example({"anyOf": [{"items": {"const": 1}}, {"prefixItems": [True]}], "unevaluatedItems": False}, ["x"])
@example({"allOf": [{"contains": {"const": 1}}], "unevaluatedItems": {"type": "null"}}, [1, None, 2])
@example(
    {"if": {"prefixItems": [{"const": 1}]}, "then": {"prefixItems": [True, True]}, "unevaluatedItems": False},
    [1, 2],
)
def test_value_matches_as_for_another_implementation(schema: Schema, value: Any) -> None:
    if check_schema(schema):
        return

    problems = check_value(schema, value)

    assert (problems == []) is Draft202012Validator(schema).is_valid(value), problems
    assert {each.code for each in problems} <= {codes.INPUT_MISMATCH}


def doubling(levels: int, word: str = "allOf", leaf: Any = True, keys: tuple[str, ...] = ()) -> Schema:
    """A schema of which each level applies the next one twice, below `keys` of the value."""

    def step(at: int) -> Schema:
        part: Schema = {word: [{"$ref": f"#/$defs/d{at + 1}"}] * 2}
        for key in keys:
            part = {"properties": {key: part}} if key != "[]" else {"items": part}
        return part

    defs = {f"d{at}": step(at) for at in range(levels)} | {f"d{levels}": leaf}
    return {"$ref": "#/$defs/d0", "$defs": defs}


def nested(levels: int) -> Any:
    value: Any = 0
    for _ in range(levels):
        value = {"a": value}
    return value


COLLIDING = [at * ((1 << 61) - 1) for at in range(1, 30_000)]
LISTS = [[at] for at in range(3_000)]
ROWS = [{"id": at, "name": f"row {at}", "tags": ["a", "b"]} for at in range(20_000)]
HOSTILE: list[tuple[Schema, Any]] = [
    *((doubling(40, word), 0) for word in ("allOf", "anyOf", "oneOf")),
    (doubling(40, "anyOf", {"type": "null"}), 0),
    (doubling(40, "oneOf", False), 0),
    (doubling(13), [0] * 5_000),
    (doubling(60, keys=("a",)), nested(60)),
    (doubling(60, keys=("[]",)), [[[[[[[[0] * 9] * 9] * 9] * 3] * 3] * 3] * 3]),
    ({"items": {"enum": [[at] for at in range(300)]}}, [[299]] * 3_000),
    ({"items": {"enum": LISTS}}, LISTS),
    ({"items": {"const": LISTS}}, [LISTS] * 1_000),
    ({"uniqueItems": True}, COLLIDING),
    ({"items": {"enum": COLLIDING}}, COLLIDING),
    ({"uniqueItems": True}, LISTS * 2),
    ({"contains": {"contains": {"contains": {"const": 1}}}, "minContains": 5_000}, [[[0] * 50] * 50] * 50),
    ({"patternProperties": {f"k{at}.*x": True for at in range(300)}}, {f"k{at}": 0 for at in range(3_000)}),
    (
        {"patternProperties": {f"k{at}.*x": True for at in range(300)}, "additionalProperties": False},
        {f"k{at}": 0 for at in range(3_000)},
    ),
    (
        {"propertyNames": {"anyOf": [{"const": f"x{at}"} for at in range(500)]}},
        {f"k{at}": 0 for at in range(5_000)},
    ),
    ({"items": {"pattern": r"\pL{80}"}}, ["é" * 1_000] * 1_000),
    ({"allOf": [{"pattern": f"z{{0,1000}}{at}"} for at in range(2_000)]}, "z"),
    ({"dependentSchemas": {"a": doubling(12)["$defs"]["d0"]}, "$defs": doubling(12)["$defs"]}, {"a": 1}),
    ({"if": {"uniqueItems": True}, "then": {"items": {"not": {"enum": LISTS}}}}, LISTS),
    ({"unevaluatedItems": False, **doubling(12, leaf={"contains": {"const": 1}})}, [0] * 500),
    ({"required": [f"k{at}" for at in range(20_000)]}, {}),
    ({"items": {"required": [f"k{at}" for at in range(2_000)]}}, [{}] * 20_000),
    ({"anyOf": [{"required": [f"k{at}"]} for at in range(5_000)]}, {"big": ROWS}),
    (
        {
            "allOf": [{"$ref": f"#a{at}"} for at in range(2_000)],
            "$defs": {f"a{at}": {"$anchor": f"a{at}"} for at in range(2_000)},
        },
        0,
    ),
    (
        {
            "$defs": {f"d{at}": {"$ref": f"#/$defs/d{at + 1}"} for at in range(5_000)} | {"d5000": True},
            "$ref": "#/$defs/d0",
        },
        0,
    ),
    ({"allOf": [{"allOf": [{} for _ in range(90)]} for _ in range(90)]}, 0),
    ({"multipleOf": 1e-300}, [1e300, 10**4_000]),
    ({"$schema": "http://json-schema.org/draft-07/schema#", "pattern": "(a+)+$"}, "a" * 60 + "!"),
    (
        {"properties": {"a": {"$schema": "http://json-schema.org/draft-07/schema#", "pattern": "(a+)+$"}}},
        {"a": "a" * 60 + "!"},
    ),
]


CHAIN: Schema = {
    "$ref": "#/$defs/0",
    "$defs": {str(at): {"$ref": f"#/$defs/{at + 1}"} for at in range(60)} | {"60": True},
}


class Estimate(Meter):
    """A meter that counts, and ends after a second."""

    spent: int = 0

    def charge(self, cost: int) -> None:
        self.spent += cost
        if self.spent > 1_000_000_000:
            raise TimeoutError


@pytest.mark.parametrize(("schema", "value"), HOSTILE, ids=range(len(HOSTILE)))
def test_check_takes_no_longer_than_it_is_charged_for(schema: Schema, value: Any) -> None:
    meter = Estimate(0, int)
    began = time.thread_time()

    with suppress(TimeoutError):
        list(unusable_parts(schema, meter))
    with suppress(TimeoutError, UnusableSchemaError, ExpressionError):
        Check(schema, meter, 50).run(value)

    assert time.thread_time() - began < 0.5 + SLACK * meter.spent / 1e9


@pytest.mark.parametrize(
    ("schema", "code", "message"),
    [
        (doubling(40), codes.BAD_SCHEMA, "too many schemas to one value (limit: 10,000 schemas)"),
        ({"allOf": [{"pattern": f"z{{0,1000}}{at}"} for at in range(2_000)]}, codes.SCHEMA_TOO_EXPENSIVE, "limit: 1 s"),
        ({"pattern": "z{0,1000}" * 25}, codes.BAD_SCHEMA, "25,000 times in all (limit: 3,000 times)"),
        (CHAIN, codes.BAD_SCHEMA, "(limit: 50 schemas)"),
    ],
)  # fmt: skip
def test_too_expensive_schema_is_refused_with_the_limit(schema: Schema, code: str, message: str) -> None:
    (problem,) = check_schema(schema)

    assert problem.code == code
    assert message in problem.message


def test_too_expensive_check_of_a_value_names_the_limit() -> None:
    schema = doubling(40, keys=("a",))

    assert check_schema(schema) == []
    (problem,) = check_value(schema, nested(40))

    assert (problem.path, problem.code) == ("input", codes.SCHEMA_TOO_EXPENSIVE)
    assert f"limit: {MAX_CHECK_S} s" in problem.message


def test_many_rows_are_checked_within_the_limit() -> None:
    row = {
        "type": "object",
        "required": ["id", "name"],
        "properties": {
            "id": {"type": "integer", "minimum": 0},
            "name": {"type": "string", "pattern": "^row "},
            "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "uniqueItems": True},
        },
        "additionalProperties": False,
    }

    assert check_value({"type": "array", "items": row}, ROWS * 6) == []


@pytest.mark.parametrize(
    ("schema", "path"),
    [
        ({"enum": 1}, "inputs.enum"),
        ({"items": [{}]}, "inputs.items"),
        ({"allOf": []}, "inputs.allOf"),
        ({"allOf": [{"minLength": -1}]}, "inputs.allOf[0].minLength"),
        ({"properties": {"$ref": {"type": "text"}}}, "inputs.properties.$ref.type"),
        ({"dependentRequired": {"a": "b"}}, "inputs.dependentRequired"),
        ({"multipleOf": 0}, "inputs.multipleOf"),
        ({"$ref": "#/x/y", "x": {"y": {"type": 1}}}, "inputs.x.y.type"),
        ({"$ref": "#/x", "x": [1]}, "inputs"),
        ({"$ref": "#none"}, "inputs"),
        ({"$defs": {"a": {"not": {"$ref": "#/$defs/a"}}}}, "inputs"),
    ],
)
def test_wrong_schema_is_reported_at_its_place(schema: Schema, path: str) -> None:
    assert [(each.path, each.code) for each in check_schema(schema)] == [(path, codes.BAD_SCHEMA)]


def test_messages_show_a_bounded_part_of_the_value() -> None:
    value = {"rows": ROWS, "text": "x" * 1_000_000, "number": 10**4_000}

    shapes: list[Schema] = [
        {"type": "null"},
        {"not": {}},
        {"maxProperties": 1},
        {"properties": {"text": False}},
    ]
    for schema in shapes:
        (problem,) = check_value(schema, value)
        assert len(problem.message) < 300


def test_limits_are_ordered() -> None:
    assert MAX_SCHEMAS_S < MAX_CHECK_S
