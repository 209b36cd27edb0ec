"""The difference between two definitions."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rune.core.definition.diff import Change, Field, difference
from rune.core.definition.model import canonical
from tests.support.documents import Raw, document, node, parsed

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


def stored(raw: Raw) -> Raw:
    """The canonical form in which a definition is stored."""
    definition = parsed(raw).definition
    assert definition is not None
    found: Raw = json.loads(canonical(definition))
    return found


def changed(alter: Any) -> tuple[Change, ...]:
    """The difference between the base document and an altered copy."""
    later = copy.deepcopy(BASE)
    alter(later)
    return difference(stored(BASE), stored(later))


def summary(changes: tuple[Change, ...]) -> list[tuple[str, str, str]]:
    return [(each.what, each.id, each.kind) for each in changes]


def only_fields(changes: tuple[Change, ...]) -> tuple[Field, ...]:
    (change,) = changes
    return change.fields


def test_equal_definitions_have_no_difference() -> None:
    assert difference(stored(BASE), stored(BASE)) == ()


def test_changed_parameters_are_listed_with_path() -> None:
    changes = changed(lambda later: later["nodes"][1]["parameters"].update(url="http://b", headers={"y": 2}))

    assert summary(changes) == [("node", "fetch", "changed")]
    assert only_fields(changes) == (
        Field("parameters.headers.x", "removed", "1"),
        Field("parameters.headers.y", "added", None, 2),
        Field("parameters.url", "changed", "http://a", "http://b"),
    )


def test_added_and_removed_nodes_and_edges_are_listed() -> None:
    def alter(later: Raw) -> None:
        later["nodes"][2] = node("mail", "smtp", {"to": "x"})
        later["edges"][1] = {"src": "fetch", "dst": "mail"}

    changes = changed(alter)

    assert summary(changes) == [
        ("node", "mail", "added"),
        ("node", "note", "removed"),
        ("edge", "fetch-mail", "added"),
        ("edge", "fetch-note", "removed"),
    ]
    assert changes[0].after == node("mail", "smtp", {"to": "x"})
    assert changes[1].before == node("note", "log", {"message": "hi"})


def test_document_and_settings_changes_are_separate() -> None:
    changes = changed(lambda later: later.update(name="Mails", settings={"timeout": 5.0}))

    assert summary(changes) == [("document", "test", "changed"), ("settings", "", "changed")]
    assert changes[0].fields == (Field("name", "changed", "Orders", "Mails"),)
    assert changes[1].fields == (
        Field("priority", "removed", 7),
        Field("timeout", "added", None, 5.0),
    )


def test_missing_and_empty_sections_are_equal() -> None:
    changes = difference({"id": "a", "nodes": []}, {"id": "a", "edges": [], "settings": {}})

    assert changes == ()


def test_edge_with_new_id_is_changed_not_replaced() -> None:
    changes = changed(lambda later: later["edges"][0].update(id="first"))

    assert summary(changes) == [("edge", "first", "changed")]
    assert only_fields(changes) == (Field("id", "changed", "start-fetch", "first"),)


def test_equal_edges_are_paired_in_order() -> None:
    before = {"edges": [{"id": "a", "src": "x"}, {"id": "b", "src": "x"}]}
    after = {"edges": [{"id": "c", "src": "x"}, {"id": "d", "src": "x"}, {"id": "e", "src": "x"}]}

    assert [
        (each.kind, each.before and each.before["id"], each.id) for each in difference(before, after)
    ] == [
        ("changed", "a", "c"),
        ("changed", "b", "d"),
        ("added", None, "e"),
    ]
    assert summary(difference(after, before))[-1] == ("edge", "e", "removed")


def test_reordered_nodes_or_edges_are_a_change() -> None:
    changes = changed(lambda later: later["nodes"].insert(0, later["nodes"].pop()))

    assert only_fields(changes) == (
        Field("nodes", "reordered", ["start", "fetch", "note"], ["note", "start", "fetch"]),
    )
    (edges,) = changed(lambda later: later["edges"].reverse())
    assert (edges.what, edges.fields[0].path) == ("document", "edges")


def test_inserted_node_does_not_reorder_others() -> None:
    changes = changed(lambda later: later["nodes"].insert(1, node("more")))

    assert summary(changes) == [("node", "more", "added")]


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
def test_nested_value_change_names_smallest_difference(
    before: Any, after: Any, expected: list[Field]
) -> None:
    def definition(value: Any) -> Raw:
        return {"nodes": [{"id": "n", "p": {"x": value}}]}

    found = only_fields(difference(definition(before), definition(after)))

    assert list(found) == expected
    assert [type(each.after) for each in found] == [type(each.after) for each in expected]


values = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.floats(-2, 2) | st.sampled_from(["", "a", "b"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=6,
)
elements = st.dictionaries(st.sampled_from("abcd"), values, max_size=3).map(
    lambda found: [{"id": key, "p": value} for key, value in found.items()]
)
definitions = st.fixed_dictionaries(
    {"id": st.just("w"), "nodes": elements},
    optional={
        "edges": elements.filter(bool),
        "settings": st.just({"priority": 1}),
        "name": st.sampled_from("xy"),
    },
)


@given(definitions, definitions)
def test_difference_is_empty_iff_content_is_equal(before: Raw, after: Raw) -> None:
    same = json.dumps(before, sort_keys=True) == json.dumps(after, sort_keys=True)

    assert (difference(before, after) == ()) == same
