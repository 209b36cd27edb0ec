"""Line and column of problems in JSON and YAML documents."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rune.core.definition import problems as codes
from rune.core.definition.strict_json import walk
from rune.documents.loader import check_document, find_places, load_document
from rune.nodes.registry import standard_catalogue

YAML = """\
id: order
nodes:
  - id: start
    type: input
  - id: fetch
    type: http
    colour: red
    parameters:
      url: https://shop.example
      timeout: soon
  - id: tell
    type: teleport
  - {id: wait, type: http, parameters: {method: GET}}
edges:
  - {src: start, dst: fetch}
  - {src: fetch, dst: nobody}
  - src: fetch
    dst: tell
  - {src: tell, dst: wait}
"""

JSON = """\
{
  "id": "order",
  "nodes": [
    {"id": "start", "type": "input"},
    {
      "id": "fetch",
      "type": "http",
      "parameters": {"url": "{{ $trigger.url }}", "timeout": []}
    }
  ],
  "edges": [{"src": "start", "dst": "fetsch"}]
}
"""


def places(text: str, suffix: str) -> dict[str, tuple[int | None, int | None]]:
    """Line and column of each problem, by its path."""
    result = check_document(load_document(text.encode(), suffix), standard_catalogue())
    return {each.path: (each.line, each.column) for each in result.problems}


def test_problems_of_yaml_have_line_and_column() -> None:
    found = places(YAML, "yaml")

    assert found["nodes[1].colour"] == (7, 5)
    assert found["nodes[1].parameters.timeout"] == (10, 16)
    assert found["nodes[2].type"] == (12, 11)
    assert found["nodes[3].parameters.url"] == (13, 28)
    assert found["edges[1].dst"] == (16, 23)


def test_problems_of_json_have_line_and_column() -> None:
    found = places(JSON, "json")

    assert found["nodes[1].parameters.timeout"] == (8, 51)
    assert found["edges[0].dst"] == (11, 37)


def test_problems_name_synonyms_of_dependency_dialect() -> None:
    text = (
        "nodes:\n  - id: a\n    handler: teleport\n  - id: b\n    handler: http\n    config:\n      url: 5\n"
    )

    found = places(text, "yaml")

    assert found["nodes[0].type"] == (3, 14)
    assert found["nodes[1].parameters.url"] == (7, 12)


def test_missing_field_has_position_of_its_object() -> None:
    assert places('{"nodes": [\n  {"id": "a"}\n]}', "json")["nodes[0]"] == (2, 3)


@pytest.mark.parametrize(
    ("text", "suffix", "code", "position"),
    [
        ('{"nodes": [}', "json", codes.NOT_JSON, (1, 12)),
        ("nodes:\n  - {id: a\n", "yaml", codes.NOT_YAML, (3, 1)),
        ("nodes:\n  - &x {id: a}\n", "yaml", codes.ALIAS_REFUSED, (2, 5)),
        ("id: a\nid: b\nnodes: []\n", "yaml", codes.DUPLICATE_KEY, (2, 1)),
        ('{"id": "a",\n "id": "b"}', "json", codes.DUPLICATE_KEY, (2, 2)),
        (b'{\n "\xc3\xa4\xff": 1}', "json", codes.NOT_TEXT, (2, 4)),
        (b"id: \xc3\xa4\xff", "yaml", codes.NOT_TEXT, (1, 6)),
        ("- a", "yaml", codes.WRONG_TYPE, (1, 1)),
    ],
)
def test_unreadable_text_has_line_and_column(
    text: str | bytes, suffix: str, code: str, position: tuple[int, int]
) -> None:
    problem = next(each for each in load_document(text, suffix).problems if each.code == code)

    assert (problem.line, problem.column) == position
    assert "line" not in problem.message


KEYS = st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Cc")), max_size=6)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | KEYS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=12,
)


@given(VALUES, st.sampled_from([None, 1, 3]))
def test_every_value_of_json_text_has_its_position(value: Any, indent: int | None) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=False)

    found = find_places(text, "json")

    lines = text.split("\n")
    decoder = json.JSONDecoder()
    for path, part in walk(value):
        if sum(other == path for other, _ in walk(value)) > 1:
            continue  # keys with dots make paths ambiguous
        line, column = found[path].value
        offset = sum(len(each) + 1 for each in lines[: line - 1]) + column - 1
        assert decoder.raw_decode(text, offset)[0] == part
