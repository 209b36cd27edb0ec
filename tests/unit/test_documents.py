"""Loading of YAML and JSON documents, and start payloads checked against their schema."""

from __future__ import annotations

import json
import pathlib
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rune.core.definition import problems as codes
from rune.core.definition.model import Definition, content_hash
from rune.core.limits import Limits
from rune.documents.loader import check_document, check_input, input_problems, load_document
from rune.documents.yaml import decode_yaml
from rune.errors import InvalidDocumentError
from rune.nodes.registry import standard_catalogue
from tests.support.documents import document, node, parsed

YAML = """
id: order   # a comment
nodes:
  - id: start
    type: input
  - {id: pick, type: conditional, parameters: {expression: $start.n > 3}}
  - id: "yes"
    type: log
    parameters:
      message: |
        two
        lines
edges:
  - {src: start, dst: pick}
  - {src: pick, dst: "yes", label: true}
"""


def definition_of(raw: dict[str, Any]) -> Definition:
    definition = parsed(raw).definition
    assert definition is not None
    return definition


def decode(text: str) -> Any:
    return decode_yaml(text, max_bytes=10_000, max_depth=50)


def test_yaml_and_json_give_same_content_hash() -> None:
    raw = document(
        [
            node("start", "input"),
            node("pick", "conditional", {"expression": "$start.n > 3"}),
            node("yes", "log", {"message": "two\nlines\n"}),
        ],
        "start>pick",
        "pick>yes:true",
    ) | {"id": "order"}

    result = load_document(YAML.encode(), "yaml")

    assert result.problems == ()
    assert result.definition is not None
    assert content_hash(result.definition) == content_hash(definition_of(raw))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("~", None),
        ("null", None),
        ("", None),
        ("True", True),
        ("false", False),
        ("yes", "yes"),
        ("on", "on"),
        ("12", 12),
        ("-012", -12),
        ("0o17", 15),
        ("0x1F", 31),
        ("1.5", 1.5),
        ("-.5e3", -500.0),
        ("1.", 1.0),
        ("1_000", "1_000"),
        ("12:30:45", "12:30:45"),
        ("2001-01-01", "2001-01-01"),
        ("'12'", "12"),
        ('"true"', "true"),
        ("<<", "<<"),
        ("18446744073709551615", 18446744073709551615),
    ],
)
def test_yaml_scalars_follow_core_schema(text: str, value: Any) -> None:
    result = decode(f"- {text}")

    assert result.problems == ()
    assert result.value == [value]
    assert type(result.value[0]) is type(value)


@pytest.mark.parametrize(
    ("text", "path", "code"),
    [
        ("a: &x 1", "a", codes.ALIAS_REFUSED),
        ("a: *x", "a", codes.ALIAS_REFUSED),
        ("- &x [1]", "[0]", codes.ALIAS_REFUSED),
        ("a: !!python/object:os.system x", "a", codes.TAG_REFUSED),
        ("a: !mine {}", "a", codes.TAG_REFUSED),
        ("a: {b: 1, b: 2}", "a.b", codes.DUPLICATE_KEY),
        ("a: .nan", "a", codes.BAD_NUMBER),
        ("a: -.inf", "a", codes.BAD_NUMBER),
        ("a: 1e999", "a", codes.BAD_NUMBER),
        ("a: 18446744073709551616", "a", codes.BAD_NUMBER),
        ("a: 0xFFFFFFFFFFFFFFFFF", "a", None),
        ("a: " + "9" * 40, "a", codes.BAD_NUMBER),
        ("a: 0o7777777777777777777777", "a", codes.BAD_NUMBER),
        ('a: "\\ud800"', "a", codes.BAD_TEXT),
        ('"\\ud800": 1', "", codes.BAD_TEXT),
        ("? [1]\n: 2", "", codes.WRONG_TYPE),
        ("a: 1\n---\nb: 2", "", codes.NOT_YAML),
        ("a: [1, 2", "", codes.NOT_YAML),
        ("\x00", "", codes.NOT_YAML),
        ("[" * 60 + "]" * 60, "", codes.TOO_DEEP),
        ("a: " + "x" * 10_000, "", codes.TOO_LARGE),
    ],
)
def test_unsafe_or_malformed_yaml_is_rejected(text: str, path: str, code: str | None) -> None:
    found = [(each.path, each.code) for each in decode(text).problems]

    assert found == ([(path, code)] if code else [])


def test_yaml_that_takes_too_long_is_rejected() -> None:
    dense = f"nodes: [{'a,' * 100_000}]"
    began = time.thread_time()
    (problem,) = load_document(dense, "yaml", yaml_seconds=0.2).problems
    assert time.thread_time() - began < 2
    assert (problem.code, problem.hint) == ("TOO_LARGE", "send JSON")
    assert problem.line is not None


def test_yaml_that_is_not_utf8_is_rejected() -> None:
    assert [each.code for each in decode_yaml(b"\xff", max_bytes=9, max_depth=9).problems] == [codes.NOT_TEXT]


@given(st.text("ab:-[]{},&*!|>'\"\n #%@`?~.1e\t", max_size=40))
def test_load_document_never_raises_on_any_text(text: str) -> None:
    load_document(text, "yaml")


def test_file_suffix_selects_format(tmp_path: pathlib.Path) -> None:
    for name, text in [
        ("a.yaml", YAML),
        ("b.YML", YAML),
        ("c.json", '{"nodes": [{"id": "a", "type": "noop"}]}'),
    ]:
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        assert load_document(path).problems == ()


def test_unreadable_or_oversized_files_are_rejected(tmp_path: pathlib.Path) -> None:
    (tmp_path / "a.toml").write_text("x = 1", encoding="utf-8")
    (tmp_path / "big.json").write_text('"' + "x" * 100 + '"', encoding="utf-8")

    assert [each.code for each in load_document(tmp_path / "none.json").problems] == [codes.UNREADABLE]
    assert [each.code for each in load_document(tmp_path).problems] == [codes.UNREADABLE]
    assert [each.code for each in load_document(tmp_path / "a.toml").problems] == [codes.UNKNOWN_FORMAT]
    limits = Limits(definition_bytes=50)
    assert [each.code for each in load_document(tmp_path / "big.json", limits=limits).problems] == [
        codes.TOO_LARGE
    ]


@pytest.mark.parametrize(
    ("schema", "path"),
    [
        ({"type": "objekt"}, "inputs.type"),
        ({"properties": {"a": {"minimum": "x"}}}, "inputs.properties.a.minimum"),
        ({"$ref": "https://example.com/schema"}, "inputs.$ref"),
        ({"$ref": "#/$defs/none"}, "inputs"),
        ({"$ref": "#"}, "inputs"),
        ({"allOf": [{"$ref": "#"}]}, "inputs"),
        ({"properties": {"a": {"pattern": "(?=x)"}}}, "inputs.properties.a"),
        ({"patternProperties": {"(": {}}}, "inputs"),
        ({"unevaluatedProperties": False}, "inputs.unevaluatedProperties"),
    ],
)
def test_unusable_input_schema_is_rejected(schema: dict[str, Any], path: str) -> None:
    result = check_document(parsed(document([node("a")], inputs=schema)), standard_catalogue())

    assert [(each.path, each.code) for each in result.problems] == [(path, codes.BAD_SCHEMA)]


SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["id"],
    "properties": {
        "id": {"type": "integer"},
        "mail": {"type": "string", "pattern": "^[^@]+@[^@]+$"},
        "tags": {"uniqueItems": True},
        "child": {"$ref": "#"},
        "map": {"patternProperties": {"^x": {"type": "number"}}, "additionalProperties": False},
        "open": {"additionalProperties": {"type": "string"}},
    },
}


@pytest.mark.parametrize(
    "payload",
    [
        '{"id": 7, "more": 1}',
        '{"id": 7, "mail": "a@b", "tags": [1, true, "1", {"a": 1}, [1], 1e300]}',
        '{"id": 7, "child": {"id": 8, "child": {"id": 9}}}',
        '{"id": 7, "map": {"x1": 1.5}, "open": {"a": "b"}}',
        '{"id": 7, "map": 5, "open": [], "tags": "aa"}',
    ],
)
def test_payload_matching_schema_is_accepted(payload: str) -> None:
    definition = definition_of(document([node("a")], inputs=SCHEMA))

    assert input_problems(definition, payload) == []
    check_input(definition, payload)


@pytest.mark.parametrize(
    ("payload", "paths"),
    [
        ("{}", ["input"]),
        ('{"id": "seven"}', ["input.id"]),
        ('{"id": 7, "mail": "a"}', ["input.mail"]),
        ('{"id": 7, "tags": [1, 1.0]}', ["input.tags"]),
        ('{"id": 7, "tags": [{"a": 1, "b": 2}, {"b": 2, "a": 1.0}]}', ["input.tags"]),
        ('{"id": 7, "child": {}}', ["input.child"]),
        ('{"id": 7, "map": {"x": "a", "y": 1}}', ["input.map", "input.map.x"]),
        ('{"id": 7, "open": {"a": 1}}', ["input.open.a"]),
    ],
)
def test_payload_mismatch_is_reported_at_its_path(payload: str, paths: list[str]) -> None:
    definition = definition_of(document([node("a")], inputs=SCHEMA))

    problems = input_problems(definition, payload)

    assert [(each.path, each.code) for each in problems] == [(path, codes.INPUT_MISMATCH) for path in paths]
    with pytest.raises(InvalidDocumentError) as raised:
        check_input(definition, payload)
    assert raised.value.problems == tuple(problems)


def test_usable_input_schema_is_accepted() -> None:
    assert check_document(parsed(document([node("a")], inputs=SCHEMA)), standard_catalogue()).problems == ()


def test_malformed_payload_is_rejected_before_schema_check() -> None:
    definition = definition_of(document([node("a")], inputs=SCHEMA))

    assert [each.code for each in input_problems(definition, b'{"x": NaN}')] == [codes.BAD_NUMBER]


def test_any_json_payload_is_accepted_without_schema() -> None:
    assert input_problems(definition_of(document([node("a")])), b"[1]") == []


def test_payload_mismatches_are_capped_at_fifty() -> None:
    definition = definition_of(document([node("a")], inputs={"items": {"type": "null"}}))

    assert len(input_problems(definition, str(list(range(1000))))) == 50


def test_recursive_schema_at_input_check_is_bad_schema() -> None:
    definition = definition_of(document([node("a")], inputs={"$ref": "#"}))

    problems = input_problems(definition, b"1")

    assert [each.code for each in problems] == [codes.BAD_SCHEMA]


def test_payload_check_of_catastrophic_pattern_terminates() -> None:
    definition = definition_of(document([node("a")], inputs={"pattern": "^(a+)+$"}))

    assert len(input_problems(definition, '"' + "a" * 5000 + '!"')) == 1


def test_too_many_nodes_are_reported_once() -> None:
    raw = {
        "nodes": [{"id": f"n{at}", "type": "noop"} for at in range(2_001)],
        "edges": [{"src": "n0", "dst": f"n{at}"} for at in range(1, 2_001)],
    }

    problems = check_document(load_document(json.dumps(raw), "json"), standard_catalogue()).problems

    assert [(each.path, each.code) for each in problems] == [("nodes", "TOO_MANY")]


def test_out_of_range_number_is_printed_without_exponent() -> None:
    raw = {"nodes": [{"id": "a", "type": "noop", "timeout": 40_000_000}]}

    (problem,) = check_document(load_document(json.dumps(raw), "json"), standard_catalogue()).problems

    assert problem.message == "40,000,000 is out of range: more than 0, at most 31,622,400"
