"""Parsing of documents and payloads: definitions, problems and their paths."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rune.core.definition import problems
from rune.core.definition.model import Definition, ErrorPolicy, HookHandler, Node, Retry, content_hash
from rune.core.definition.parser import Parsed, SourceLocations, parse_data, parse_document
from rune.core.definition.strict_json import Decoded, decode_plain, json_depth, parse_input
from rune.core.limits import Limits
from tests.support.documents import document, node, parsed

SMALL = Limits(definition_bytes=200, nodes=2, edges=2, json_depth=5, payload_bytes=50)


def codes_of(found: Parsed | Decoded) -> list[tuple[str, str]]:
    return [(each.path, each.code) for each in found.problems]


def errors(raw: Any) -> list[tuple[str, str]]:
    return codes_of(parsed(raw))


def test_full_document_is_parsed() -> None:
    raw = {
        "id": "order-sync",
        "name": "Order sync",
        "inputs": {"type": "object"},
        "settings": {
            "timeout": 3600,
            "max_parallel": 100,
            "priority": 5,
            "join_timeout": 0,
            "executor": "legacy",
            "callable_by": ["shop-*"],
            "on_failure": {"workflow": "b", "version": 3, "statuses": ["failed", "cancelled", "failed"]},
        },
        "metadata": {"any": ["thing"]},
        "notes": "free",
        "nodes": [
            {
                "id": "fetch",
                "type": "http",
                "name": "Fetch user",
                "parameters": {"url": "x"},
                "credentials": {"name": "api"},
                "retry": {
                    "max_attempts": 4,
                    "initial_delay": 1,
                    "backoff": 2,
                    "jitter": True,
                    "on": ["HTTP_TIMEOUT"],
                },
                "timeout": 30,
                "error": {"type": "branch", "error_edge": "e_err"},
                "join": "any",
                "queue": "slow",
                "at_most_once": True,
                "idempotency_key": False,
                "trigger": False,
                "output": {},
                "position": [1, 2],
                "metadata": 1,
                "notes": None,
            },
            {"id": "note", "type": "log", "credentials": "short"},
        ],
        "edges": [{"id": "e_err", "src": "fetch", "dst": "note"}],
    }

    result = parsed(raw)

    assert result.problems == ()
    assert not result.refused
    assert result.definition is not None
    fetch, note = result.definition.nodes
    assert fetch.retry == Retry(max_attempts=4, initial_delay=1.0, backoff=2.0, on=("HTTP_TIMEOUT",))
    assert fetch.error == ErrorPolicy(type="branch", error_edge="e_err")
    assert (fetch.timeout, fetch.join, fetch.queue) == (30.0, "any", "slow")
    assert (fetch.at_most_once, fetch.idempotency_key, fetch.position) == (True, False, [1, 2])
    assert note.credentials == {"name": "short"}
    assert result.definition.settings.executor == "legacy"
    assert result.definition.settings.callable_by == ("shop-*",)
    assert result.definition.settings.on_failure == HookHandler(
        workflow="b", version=3, statuses=("failed", "cancelled")
    )
    assert result.definition.edges[0].is_error
    assert result.places == SourceLocations(("nodes[0]", "nodes[1]"), ("edges[0]",))


def test_handler_is_the_id_of_a_workflow_or_names_a_version_of_it() -> None:
    late = {"workflow": "b", "version": "stable"}
    settings = {"on_failure": "a", "expect_within": 60, "on_late": late, "expect_every": 1, "on_missing": "c"}
    result = parsed({"id": "w", "nodes": [node("x")], "settings": settings})

    assert result.definition is not None
    found = result.definition.settings
    assert (str(found.on_failure), str(found.on_late), str(found.on_missing)) == ("a", "b@stable", "c")
    assert found.expect_every == 1.0


def test_dependencies_dialect_gives_same_content_hash() -> None:
    canonical = {
        "id": "w",
        "nodes": [node("a", "input"), node("b", "log", {"message": "x"})],
        "edges": [{"id": "a-b", "src": "a", "dst": "b"}],
    }
    dependent = {
        "id": "w",
        "nodes": [
            {"id": "a", "handler": "input"},
            {"id": "b", "handler": "log", "config": {"message": "x"}, "dependencies": ["a"]},
        ],
    }

    one, other = parsed(canonical).definition, parsed(dependent).definition

    assert one is not None
    assert other is not None
    assert content_hash(one) == content_hash(other)


@pytest.mark.parametrize(
    ("nodes", "notes"),
    [
        ((Node(id="a", type="input", position=(1, 2)),), None),
        ((Node(id="a", type="input", notes="first"),), None),
        ((Node(id="a", type="input"),), "all about it"),
    ],
)
def test_content_hash_excludes_positions_and_notes(nodes: tuple[Node, ...], notes: str | None) -> None:
    plain = Definition(id="x", nodes=(Node(id="a", type="input"),))
    assert content_hash(Definition(id="x", nodes=nodes, notes=notes)) == content_hash(plain)


def test_problem_text_names_its_line_and_column_if_known() -> None:
    problem = problems.Problem("nodes[0]", "X", "is wrong")
    assert problem.text == "nodes[0]: is wrong"
    placed = problems.Problem("", "X", "is wrong", line=3, column=7)
    assert placed.text == "document: is wrong (line 3, column 7)"


def test_dependency_edges_follow_explicit_edges() -> None:
    raw = document([node("a"), node("b"), node("c", dependencies=["b", "a"]), node("d")], "c>d")

    result = parsed(raw)

    assert result.definition is not None
    assert [(each.src, each.dst) for each in result.definition.edges] == [("c", "d"), ("b", "c"), ("a", "c")]
    assert result.places.edges == ("edges[0]", "nodes[2].dependencies[0]", "nodes[2].dependencies[1]")


def test_generated_edge_ids_are_unique() -> None:
    raw = document([node("a"), node("b")], "a>b", "a>b")
    raw["edges"].append({"id": "a-b", "src": "a", "dst": "b"})
    raw["edges"].append({"src": "a b", "dst": "c"})
    raw["edges"].append({"src": "é", "dst": "ü"})

    result = parsed(raw)

    assert result.definition is not None
    assert [each.id for each in result.definition.edges] == ["a-b-2", "a-b-3", "a-b", "a-b-c", "edge"]


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ({"id": "given", "name": "Other"}, "given"),
        ({"name": "Order sync, daily!"}, "order-sync-daily"),
        ({"name": "!!!"}, "workflow"),
        ({}, "workflow"),
    ],
)
def test_missing_id_is_derived_from_name(raw: dict[str, Any], expected: str) -> None:
    definition = parsed(raw | {"nodes": [node("a")]}).definition

    assert definition is not None
    assert definition.id == expected


def test_branch_shorthand_uses_only_error_edge() -> None:
    raw = document([node("a", error="branch"), node("b")], "a>b!")

    definition = parsed(raw).definition

    assert definition is not None
    assert definition.nodes[0].error == ErrorPolicy(type="branch", error_edge="a-b")


def test_is_error_string_and_boolean_labels_are_normalised() -> None:
    raw = document([node("a"), node("b")])
    raw["edges"] = [
        {"src": "a", "dst": "b", "is_error": "error"},
        {"src": "a", "dst": "b", "label": True},
        {"src": "a", "dst": "b", "label": False},
    ]

    definition = parsed(raw).definition

    assert definition is not None
    assert [(each.is_error, each.label) for each in definition.edges] == [
        (True, None),
        (False, "true"),
        (False, "false"),
    ]


@pytest.mark.parametrize("pairs", [["a>b"], ["a>b!", "a>c!"]])
def test_branch_without_exactly_one_error_edge_is_rejected(pairs: list[str]) -> None:
    raw = document([node("a", error={"type": "branch"}), node("b"), node("c")], *pairs)

    assert errors(raw) == [("nodes[0].error", problems.NO_ERROR_EDGE)]


@pytest.mark.parametrize(
    ("field", "value", "path", "code"),
    [
        ("colour", "red", "nodes[0].colour", problems.UNKNOWN_FIELD),
        ("name", 5, "nodes[0].name", problems.WRONG_TYPE),
        ("parameters", [], "nodes[0].parameters", problems.WRONG_TYPE),
        ("timeout", 0, "nodes[0].timeout", problems.WRONG_VALUE),
        ("timeout", -1, "nodes[0].timeout", problems.WRONG_VALUE),
        ("timeout", True, "nodes[0].timeout", problems.WRONG_TYPE),
        ("timeout", "30", "nodes[0].timeout", problems.WRONG_TYPE),
        ("timeout", 1e12, "nodes[0].timeout", problems.WRONG_VALUE),
        ("join", "some", "nodes[0].join", problems.WRONG_VALUE),
        ("join", 1, "nodes[0].join", problems.WRONG_TYPE),
        ("queue", "a b", "nodes[0].queue", problems.BAD_ID),
        ("trigger", "yes", "nodes[0].trigger", problems.WRONG_TYPE),
        ("retry", 3, "nodes[0].retry", problems.WRONG_TYPE),
        ("retry", {"max_attempts": 0}, "nodes[0].retry.max_attempts", problems.WRONG_VALUE),
        ("retry", {"max_attempts": 1.5}, "nodes[0].retry.max_attempts", problems.WRONG_VALUE),
        ("retry", {"backoff": 0.5}, "nodes[0].retry.backoff", problems.WRONG_VALUE),
        ("retry", {"on": "X"}, "nodes[0].retry.on", problems.WRONG_TYPE),
        ("retry", {"on": ["X", ""]}, "nodes[0].retry.on[1]", problems.WRONG_VALUE),
        ("retry", {"tries": 3}, "nodes[0].retry.tries", problems.UNKNOWN_FIELD),
        ("error", "stop", "nodes[0].error", problems.WRONG_VALUE),
        ("error", 5, "nodes[0].error", problems.WRONG_TYPE),
        ("error", {}, "nodes[0].error", problems.MISSING_FIELD),
        ("error", {"type": "stop"}, "nodes[0].error.type", problems.WRONG_VALUE),
        ("error", {"type": "halt", "edge": "x"}, "nodes[0].error.edge", problems.UNKNOWN_FIELD),
        ("credentials", 5, "nodes[0].credentials", problems.WRONG_TYPE),
        ("credentials", {"type": "basic"}, "nodes[0].credentials", problems.MISSING_FIELD),
        (
            "credentials",
            {"name": "x", "password": "y"},
            "nodes[0].credentials.password",
            problems.SECRET_IN_DOCUMENT,
        ),
        ("dependencies", "a", "nodes[0].dependencies", problems.WRONG_TYPE),
        ("handler", "log", "nodes[0].handler", problems.CONFLICT),
    ],
)
def test_bad_node_field_is_reported_at_its_path(field: str, value: Any, path: str, code: str) -> None:
    assert errors(document([node("a") | {field: value}])) == [(path, code)]


@pytest.mark.parametrize(
    ("raw", "path", "code"),
    [
        (None, "", problems.WRONG_TYPE),
        ([], "", problems.WRONG_TYPE),
        ({}, "nodes", problems.NO_NODES),
        ({"nodes": []}, "nodes", problems.NO_NODES),
        ({"nodes": {}}, "nodes", problems.WRONG_TYPE),
        ({"nodes": [5]}, "nodes[0]", problems.WRONG_TYPE),
        ({"nodes": [{"id": "a"}]}, "nodes[0]", problems.MISSING_FIELD),
        ({"nodes": [{"handler": "noop"}]}, "nodes[0]", problems.MISSING_FIELD),
        ({"nodes": [{"id": "a", "type": ""}]}, "nodes[0].type", problems.WRONG_VALUE),
        ({"nodes": [{"id": "al pha", "type": "x"}]}, "nodes[0].id", problems.BAD_ID),
        ({"nodes": [{"id": "é" * 70, "type": "x"}]}, "nodes[0].id", problems.BAD_ID),
        ({"nodes": [{"id": "a" * 129, "type": "x"}]}, "nodes[0].id", problems.BAD_ID),
        ({"nodes": [{"id": 5, "type": "x"}]}, "nodes[0].id", problems.WRONG_TYPE),
        ({"nodes": [node("a")], "edges": {}}, "edges", problems.WRONG_TYPE),
        ({"nodes": [node("a")], "edges": [5]}, "edges[0]", problems.WRONG_TYPE),
        ({"nodes": [node("a")], "edges": [{"src": "a"}]}, "edges[0]", problems.MISSING_FIELD),
        ({"nodes": [node("a")], "edges": [{"src": "a", "dst": 5}]}, "edges[0].dst", problems.WRONG_TYPE),
        (
            {"nodes": [node("a")], "edges": [{"src": "a", "dst": "a", "is_error": 1}]},
            "edges[0].is_error",
            problems.WRONG_TYPE,
        ),
        (
            {"nodes": [node("a")], "edges": [{"src": "a", "dst": "a", "color": 1}]},
            "edges[0].color",
            problems.UNKNOWN_FIELD,
        ),
        ({"nodes": [node("a")], "settings": {"priority": 11}}, "settings.priority", problems.WRONG_VALUE),
        (
            {"nodes": [node("a")], "settings": {"on_late": {"workflow": "b", "statuses": ["failed"]}}},
            "settings.on_late.statuses",
            problems.UNKNOWN_FIELD,
        ),
        (
            {"nodes": [node("a")], "settings": {"expect_within": 0}},
            "settings.expect_within",
            problems.WRONG_VALUE,
        ),
        *(
            (
                {"nodes": [node("a")], "settings": {"expect_every": value}},
                "settings.expect_every",
                problems.WRONG_VALUE,
            )
            for value in (0, -1, 0.9, 366 * 24 * 3600 + 1)
        ),
        (
            {"nodes": [node("a")], "settings": {"expect_every": "1h"}},
            "settings.expect_every",
            problems.WRONG_TYPE,
        ),
        (
            {"nodes": [node("a")], "settings": {"on_missing": {"workflow": "b", "statuses": []}}},
            "settings.on_missing.statuses",
            problems.UNKNOWN_FIELD,
        ),
        ({"nodes": [node("a")], "settings": {"on_failure": 7}}, "settings.on_failure", problems.WRONG_TYPE),
        (
            {"nodes": [node("a")], "settings": {"on_failure": "a b"}},
            "settings.on_failure.workflow",
            problems.BAD_ID,
        ),
        (
            {"nodes": [node("a")], "settings": {"on_failure": {}}},
            "settings.on_failure",
            problems.MISSING_FIELD,
        ),
        (
            {"nodes": [node("a")], "settings": {"on_failure": {"workflow": 5}}},
            "settings.on_failure.workflow",
            problems.WRONG_TYPE,
        ),
        (
            {"nodes": [node("a")], "settings": {"on_failure": {"workflow": "b", "version": True}}},
            "settings.on_failure.version",
            problems.WRONG_TYPE,
        ),
        (
            {"nodes": [node("a")], "settings": {"on_failure": {"workflow": "b", "statuses": "failed"}}},
            "settings.on_failure.statuses",
            problems.WRONG_TYPE,
        ),
        (
            {"nodes": [node("a")], "settings": {"on_failure": {"workflow": "b", "statuses": ["lost"]}}},
            "settings.on_failure.statuses[0]",
            problems.WRONG_VALUE,
        ),
        (
            {"nodes": [node("a")], "settings": {"callable_by": "b"}},
            "settings.callable_by",
            problems.WRONG_TYPE,
        ),
        (
            {"nodes": [node("a")], "settings": {"callable_by": ["b-*", "c d"]}},
            "settings.callable_by[1]",
            problems.BAD_ID,
        ),
        ({"nodes": [node("a")], "settings": {"timeout": 0}}, "settings.timeout", problems.WRONG_VALUE),
        ({"nodes": [node("a")], "settings": 5}, "settings", problems.WRONG_TYPE),
        ({"nodes": [node("a")], "inputs": "x"}, "inputs", problems.WRONG_TYPE),
        ({"nodes": [node("a")], "stuff": 1}, "stuff", problems.UNKNOWN_FIELD),
    ],
)
def test_bad_document_is_reported_at_its_path(raw: Any, path: str, code: str) -> None:
    assert errors(raw) == [(path, code)]


def test_all_problems_are_reported_and_valid_nodes_kept() -> None:
    raw = document([node("a", timeout=0), 5, node("b", colour=1)], "a>b")  # type: ignore[list-item]
    raw["settings"] = {"priority": "high"}

    result = parsed(raw)

    assert [each.path for each in result.problems] == [
        "settings.priority",
        "nodes[0].timeout",
        "nodes[1]",
        "nodes[2].colour",
    ]
    assert result.refused
    assert result.definition is not None
    assert [each.id for each in result.definition.nodes] == ["a", "b"]
    assert result.places.nodes == ("nodes[0]", "nodes[2]")


def test_misspelled_field_has_hint() -> None:
    (problem,) = parsed(document([node("a", parameter={})])).problems

    assert problem.hint == "did you mean `parameters`?"


@pytest.mark.parametrize(
    ("text", "path", "code"),
    [
        ("[1, 2", "", problems.NOT_JSON),
        ('{"a": NaN}', "a", problems.BAD_NUMBER),
        ('{"a": [0, -Infinity]}', "a[1]", problems.BAD_NUMBER),
        ('{"a": 1e999}', "a", problems.BAD_NUMBER),
        ('{"a": 18446744073709551616}', "a", problems.BAD_NUMBER),
        ('{"a": -9223372036854775809}', "a", problems.BAD_NUMBER),
        ('{"a": ' + "9" * 5000 + "}", "a", problems.BAD_NUMBER),
        ('{"a": {"b": "\\ud800"}}', "a.b", problems.BAD_TEXT),
        ('{"a": {"\\ud800": 1}}', "a", problems.BAD_TEXT),
        ("\ud800", "", problems.BAD_TEXT),
        (b"\xff\xfe", "", problems.NOT_TEXT),
        ("[" * 101 + "]" * 101, "", problems.TOO_DEEP),
        ("[" * 100_000, "", problems.TOO_DEEP),
    ],
)
def test_malformed_json_is_rejected(text: str | bytes, path: str, code: str) -> None:
    result = parse_document(text)

    assert codes_of(result) == [(path, code)]
    assert result.definition is None


@pytest.mark.parametrize(
    "text",
    [
        '{"n": 18446744073709551615, "m": -9223372036854775808, "f": 1e300}',
        '{"pair": "\\ud83d\\ude00"}',
        '\ufeff{"bom": true}',
        '{"text": "[[[[[[ \\" [[[ \\\\"}',
        '"' + "[" * 500 + '"',
        "7",
    ],
)
def test_valid_payload_is_parsed_unchanged(text: str) -> None:
    result = parse_input(text)

    assert result.problems == ()
    assert result.value == json.loads(text.lstrip("\ufeff"))


def test_duplicate_key_is_reported_at_its_path() -> None:
    result = parse_document('{"nodes": [{"id": "a", "type": "x", "id": "b", "id": "c"}]}')

    assert codes_of(result) == [("nodes[0].id", problems.DUPLICATE_KEY)] * 2
    assert result.definition is not None


def test_rejected_number_keeps_its_value() -> None:
    assert parse_input(str(2**64)).value == 2**64
    assert parse_input(f'{{"a": [{-(2**80)}, 1, 1e999], "b": {"9" * 5000}}}').value == {
        "a": [-(2**80), 1, float("inf")],
        "b": float("inf"),
    }


def test_plain_data_has_the_problems_of_the_same_text() -> None:
    assert decode_plain({"a": (1, 2.0)}) == Decoded({"a": [1, 2.0]})
    assert codes_of(decode_plain({"a": [2**64, float("nan")]})) == [
        ("a[0]", problems.BAD_NUMBER),
        ("a[1]", problems.BAD_NUMBER),
    ]
    assert codes_of(decode_plain({"a": {1, 2}})) == [("", problems.NOT_JSON)]


def test_payload_problems_have_input_path() -> None:
    assert codes_of(parse_input('{"x": [NaN]}')) == [("input.x[0]", problems.BAD_NUMBER)]
    assert codes_of(parse_input("{")) == [("input", problems.NOT_JSON)]


@pytest.mark.parametrize(
    ("raw", "path", "code"),
    [
        ({"nodes": [node("a")], "name": "x" * 200}, "", problems.TOO_LARGE),
        ({"nodes": [1, 1, 1]}, "nodes", problems.TOO_MANY),
        ({"nodes": [node("a")], "edges": [1, 1, 1]}, "edges", problems.TOO_MANY),
        ({"nodes": [node("a", dependencies=["b"] * 3)]}, "edges", problems.TOO_MANY),
        ({"nodes": [node("a", position=[[[[]]]])]}, "", problems.TOO_DEEP),
    ],
)
def test_exceeded_limit_is_reported(raw: Any, path: str, code: str) -> None:
    result = parse_document(json.dumps(raw), limits=SMALL)

    assert (path, code) in codes_of(result)


def test_payload_above_size_limit_is_rejected() -> None:
    assert codes_of(parse_input(b'"' + b"x" * 60 + b'"', limits=SMALL)) == [("input", problems.TOO_LARGE)]


def test_unknown_format_is_rejected() -> None:
    assert codes_of(parse_document("{}", suffix="toml")) == [("", problems.UNKNOWN_FORMAT)]


def test_json_depth_ignores_brackets_in_strings() -> None:
    chunk = 1024 * 1024
    text = b'["' + b"x" * (chunk - 4) + b'[[", [[{}]]]'

    assert json_depth(text) == 4
    assert json_depth(b'"[[["') == 0
    assert json_depth(b"12") == 0


def test_source_locations_of_definition_are_indices() -> None:
    definition = parsed(document([node("a"), node("b", dependencies=["a"])])).definition

    assert definition is not None
    assert SourceLocations.of(definition.nodes, definition.edges) == SourceLocations(
        ("nodes[0]", "nodes[1]"), ("edges[0]",)
    )


@given(st.binary(max_size=400))
def test_parse_document_never_raises_on_any_bytes(data: bytes) -> None:
    result = parse_document(data)

    assert isinstance(result, Parsed)
    assert result.definition is not None or result.problems


WORDS = st.text("ab $_-{}.[]é", max_size=8)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | WORDS,
    lambda part: st.lists(part, max_size=4) | st.dictionaries(WORDS, part, max_size=4),
    max_leaves=12,
)
FIELDS = st.sampled_from(
    [
        "id",
        "type",
        "handler",
        "name",
        "parameters",
        "config",
        "dependencies",
        "retry",
        "error",
        "timeout",
        "src",
        "dst",
        "x",
    ]
)
OBJECTS = st.dictionaries(FIELDS, JSON | st.sampled_from(["a", "b", "branch"]), max_size=6)


@given(
    st.dictionaries(
        st.sampled_from(["id", "name", "nodes", "edges", "settings", "inputs"]),
        JSON | st.lists(OBJECTS | JSON),
    )
)
def test_parse_data_never_raises_on_any_data(raw: dict[str, Any]) -> None:
    result = parse_data(Decoded(raw))

    assert isinstance(result, Parsed)
    if result.definition is not None:
        assert len(result.places.nodes) == len(result.definition.nodes)
        assert len(result.places.edges) == len(result.definition.edges)
        assert content_hash(result.definition)
