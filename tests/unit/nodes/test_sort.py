"""sort."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.nodes.running import error, output, run


def in_order(items: list[Any], **parameters: Any) -> list[Any]:
    found = output(run("sort", parameters, payload=items))
    assert found["count"] == found["original_count"] == len(items)
    ordered: list[Any] = found["items"]
    return ordered


def test_elements_are_ordered_by_themselves_or_by_a_key() -> None:
    assert in_order([3, 1.5, 2]) == [1.5, 2, 3]
    assert in_order(["b", "a"], direction="desc") == ["b", "a"]
    assert in_order([{"p": 3}, {"p": 1}], expression="$item.p") == [{"p": 1}, {"p": 3}]
    assert in_order([{"p": 3}, {"p": 1}], expression="-$item.p") == [{"p": 3}, {"p": 1}]
    assert in_order([7, 8, 9], expression="$index", direction="desc") == [9, 8, 7]
    assert in_order([]) == []


def test_several_keys_have_weights_and_directions_of_their_own() -> None:
    items = [{"k": "b", "n": 1}, {"k": "a", "n": 1}, {"k": "b", "n": 2}, {"k": "a", "n": 2}]
    rules = [{"field": "k"}, {"field": "n", "direction": "desc"}]
    assert [(each["k"], each["n"]) for each in in_order(items, rules=rules)] == [
        ("a", 2),
        ("a", 1),
        ("b", 2),
        ("b", 1),
    ]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers())), st.sampled_from(["asc", "desc"]))
def test_equal_keys_keep_their_order(pairs: list[tuple[int, int]], direction: str) -> None:
    items = [{"k": key, "at": at} for at, (key, _) in enumerate(pairs)]
    sign = -1 if direction == "desc" else 1
    expected = sorted(items, key=lambda each: sign * each["k"])
    assert in_order(items, expression="$item.k", direction=direction) == expected
    assert in_order(items, rules=[{"field": "k", "direction": direction}]) == expected


def test_the_list_that_came_in_is_never_changed() -> None:
    items = [3, 1, 2]
    in_order(items)
    assert items == [3, 1, 2]


@pytest.mark.parametrize("items", [[1, "a"], [None, None], [1, None], [{}, {}], [True, False], [[1], [2]]])
def test_keys_without_a_common_order_fail(items: list[Any]) -> None:
    assert error(run("sort", {}, payload=items)).code == "EXPRESSION_ERROR"


def test_a_missing_key_fails_and_names_it() -> None:
    items = [{"p": 1}, {}]
    by_expression = error(run("sort", {"expression": "$item.p"}, payload=items))
    by_rule = error(run("sort", {"rules": [{"field": "p"}]}, payload=items))
    assert by_expression.code == by_rule.code == "EXPRESSION_ERROR"
    assert "$item.p" in by_expression.message
    assert by_rule.message.startswith("parameters.rules[0].field: $item.p")
