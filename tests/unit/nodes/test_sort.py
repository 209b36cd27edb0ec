"""The `sort` node."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rune.core.definition.strict_json import MAX_INT, MIN_INT
from tests.unit.nodes.runner import error, output, run


def sort(items: list[Any], **parameters: Any) -> list[Any]:
    found = output(run("sort", parameters, payload=items))
    assert found["count"] == found["original_count"] == len(items)
    ordered: list[Any] = found["items"]
    return ordered


def test_elements_are_sorted_by_value_or_expression() -> None:
    assert sort([3, 1.5, 2]) == [1.5, 2, 3]
    assert sort(["b", "a"], direction="desc") == ["b", "a"]
    assert sort([{"p": 3}, {"p": 1}], expression="$item.p") == [{"p": 1}, {"p": 3}]
    assert sort([{"p": 3}, {"p": 1}], expression="-$item.p") == [{"p": 3}, {"p": 1}]
    assert sort([7, 8, 9], expression="$index", direction="desc") == [9, 8, 7]
    assert sort([]) == []


def test_rules_sort_by_several_fields() -> None:
    items = [{"k": "b", "n": 1}, {"k": "a", "n": 1}, {"k": "b", "n": 2}, {"k": "a", "n": 2}]
    rules = [{"field": "k"}, {"field": "n", "direction": "desc"}]
    assert [(each["k"], each["n"]) for each in sort(items, rules=rules)] == [
        ("a", 2),
        ("a", 1),
        ("b", 2),
        ("b", 1),
    ]


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(MIN_INT, MAX_INT))), st.sampled_from(["asc", "desc"])
)
def test_sort_is_stable(pairs: list[tuple[int, int]], direction: str) -> None:
    items = [{"k": key, "at": at} for at, (key, _) in enumerate(pairs)]
    sign = -1 if direction == "desc" else 1
    expected = sorted(items, key=lambda each: sign * each["k"])
    assert sort(items, expression="$item.k", direction=direction) == expected
    assert sort(items, rules=[{"field": "k", "direction": direction}]) == expected


def test_input_list_is_not_modified() -> None:
    items = [3, 1, 2]
    sort(items)
    assert items == [3, 1, 2]


@pytest.mark.parametrize("items", [[1, "a"], [None, None], [1, None], [{}, {}], [True, False], [[1], [2]]])
def test_unorderable_keys_fail(items: list[Any]) -> None:
    assert error(run("sort", {}, payload=items)).code == "EXPRESSION_ERROR"


def test_missing_key_fails_with_path() -> None:
    items = [{"p": 1}, {}]
    by_expression = error(run("sort", {"expression": "$item.p"}, payload=items))
    by_rule = error(run("sort", {"rules": [{"field": "p"}]}, payload=items))
    assert by_expression.code == by_rule.code == "EXPRESSION_ERROR"
    assert "$item.p" in by_expression.message
    assert by_rule.message.startswith("parameters.rules[0].field: $item.p")


@pytest.mark.parametrize("expression", ["$item.p ?? 0", "default($item.p, 0)"])
def test_expression_sorts_elements_without_the_field(expression: str) -> None:
    assert sort([{"p": 1}, {}, {"p": None}, {"p": -1}], expression=expression) == [
        {"p": -1},
        {},
        {"p": None},
        {"p": 1},
    ]
