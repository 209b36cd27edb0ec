"""What changed between two definitions, told so that a reader recognises it."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rune.core.definition.diff import Change, Field, difference
from rune.core.definition.model import canonical
from tests.unit.core.documents import Raw, document, node, parsed

BASE = document(
    [
        node("start", "input"),
        node("fetch", "http", {"url": "http://a", "headers": {"x": "1"}}, retry={"max_attempts": 3}),
        node("note", "log", {"message": "hi"}),
    ],
    "start>fetch",
    "fetch>note",
    name="Orders",
    settings={"priority": 7},
)


def plain(raw: Raw) -> Raw:
    """As it is stored."""
    definition = parsed(raw).definition
    assert definition is not None
    found: Raw = json.loads(canonical(definition))
    return found


def changed(alter: Any) -> tuple[Change, ...]:
    """The difference that a change to the base document makes."""
    later = copy.deepcopy(BASE)
    alter(later)
    return difference(plain(BASE), plain(later))


def told(changes: tuple[Change, ...]) -> list[tuple[str, str, str]]:
    return [(each.what, each.id, each.kind) for each in changes]


def the_fields(changes: tuple[Change, ...]) -> tuple[Field, ...]:
    (change,) = changes
    return change.fields


def test_the_same_definition_differs_in_nothing() -> None:
    assert difference(plain(BASE), plain(BASE)) == ()


def test_a_parameter_is_named_with_its_path() -> None:
    changes = changed(lambda later: later["nodes"][1]["parameters"].update(url="http://b", headers={"y": 2}))

    assert told(changes) == [("node", "fetch", "changed")]
    assert the_fields(changes) == (
        Field("parameters.headers.x", "removed", "1"),
        Field("parameters.headers.y", "added", None, 2),
        Field("parameters.url", "changed", "http://a", "http://b"),
    )


def test_nodes_and_edges_come_and_go() -> None:
    def alter(later: Raw) -> None:
        later["nodes"][2] = node("mail", "smtp", {"to": "x"})
        later["edges"][1] = {"src": "fetch", "dst": "mail"}

    changes = changed(alter)

    assert told(changes) == [
        ("node", "mail", "added"),
        ("node", "note", "removed"),
        ("edge", "fetch-mail", "added"),
        ("edge", "fetch-note", "removed"),
    ]
    assert changes[0].after == node("mail", "smtp", {"to": "x"})
    assert changes[1].before == node("note", "log", {"message": "hi"})


def test_settings_and_the_document_are_told_apart() -> None:
    changes = changed(lambda later: later.update(name="Mails", settings={"timeout": 5.0}))

    assert told(changes) == [("document", "test", "changed"), ("settings", "", "changed")]
    assert changes[0].fields == (Field("name", "changed", "Orders", "Mails"),)
    assert changes[1].fields == (
        Field("priority", "removed", 7),
        Field("timeout", "added", None, 5.0),
    )


def test_a_definition_without_edges_and_settings() -> None:
    changes = difference({"id": "a", "nodes": []}, {"id": "a", "edges": [], "settings": {}})

    assert changes == ()


def test_an_edge_with_another_id_is_the_same_edge() -> None:
    changes = changed(lambda later: later["edges"][0].update(id="first"))

    assert told(changes) == [("edge", "first", "changed")]
    assert the_fields(changes) == (Field("id", "changed", "start-fetch", "first"),)


def test_twins_are_paired_in_their_order() -> None:
    before = {"edges": [{"id": "a", "src": "x"}, {"id": "b", "src": "x"}]}
    after = {"edges": [{"id": "c", "src": "x"}, {"id": "d", "src": "x"}, {"id": "e", "src": "x"}]}

    assert [
        (each.kind, each.before and each.before["id"], each.id) for each in difference(before, after)
    ] == [
        ("changed", "a", "c"),
        ("changed", "b", "d"),
        ("added", None, "e"),
    ]
    assert told(difference(after, before))[-1] == ("edge", "e", "removed")


def test_another_order_is_a_change() -> None:
    changes = changed(lambda later: later["nodes"].insert(0, later["nodes"].pop()))

    assert the_fields(changes) == (
        Field("nodes", "reordered", ["start", "fetch", "note"], ["note", "start", "fetch"]),
    )
    (edges,) = changed(lambda later: later["edges"].reverse())
    assert (edges.what, edges.fields[0].path) == ("document", "edges")


def test_a_node_put_in_between_moves_nobody() -> None:
    changes = changed(lambda later: later["nodes"].insert(1, node("more")))

    assert told(changes) == [("node", "more", "added")]


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ([1, 2, 3], [1, 9, 2, 3], [Field("p.x[1]", "added", None, 9)]),
        ([1, 2, 3], [1, 3], [Field("p.x[1]", "removed", 2)]),
        ([1, 2], [1, 2, 3], [Field("p.x[2]", "added", None, 3)]),
        ([1, 1], [1], [Field("p.x[1]", "removed", 1)]),
        ([{"a": 1}], [{"a": 2}], [Field("p.x[0].a", "changed", 1, 2)]),
        ([1], {"a": 1}, [Field("p.x", "changed", [1], {"a": 1})]),
        (1, True, [Field("p.x", "changed", 1, True)]),
        (1, 1.0, [Field("p.x", "changed", 1, 1.0)]),
        (None, "", [Field("p.x", "changed", None, "")]),
    ],
)
def test_values_down_to_the_smallest_that_differs(before: Any, after: Any, expected: list[Field]) -> None:
    def one(value: Any) -> Raw:
        return {"nodes": [{"id": "n", "p": {"x": value}}]}

    found = the_fields(difference(one(before), one(after)))

    assert list(found) == expected
    assert [type(each.after) for each in found] == [type(each.after) for each in expected]


values = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.floats(-2, 2) | st.sampled_from(["", "a", "b"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=6,
)
things = st.dictionaries(st.sampled_from("abcd"), values, max_size=3).map(
    lambda found: [{"id": key, "p": value} for key, value in found.items()]
)
definitions = st.fixed_dictionaries(
    {"id": st.just("w"), "nodes": things},
    optional={
        "edges": things.filter(bool),
        "settings": st.just({"priority": 1}),
        "name": st.sampled_from("xy"),
    },
)


@given(definitions, definitions)
def test_nothing_differs_exactly_where_the_content_is_the_same(before: Raw, after: Raw) -> None:
    same = json.dumps(before, sort_keys=True) == json.dumps(after, sort_keys=True)

    assert (difference(before, after) == ()) == same
