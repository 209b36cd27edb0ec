"""filter."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.nodes.running import error, output, run

TEA = {"id": 1, "kind": "tea", "price": 3, "stock": 2, "from": {"country": "CN"}}
CUP = {"id": 2, "kind": "cup", "price": 9, "stock": 1}
OUT = {"id": 3, "kind": "tea", "price": 5, "stock": 0}
ALL = [TEA, CUP, OUT]


def kept(parameters: dict[str, Any], items: list[Any]) -> list[Any]:
    found = output(run("filter", {"input_array": "$trigger", **parameters}, trigger=items))
    assert (found["count"], found["original_count"]) == (len(found["items"]), len(items))
    items_kept: list[Any] = found["items"]
    return items_kept


def test_an_expression_decides_on_each_element() -> None:
    assert kept({"expression": "$item.stock > 0"}, ALL) == [TEA, CUP]
    assert kept({"expression": "{{ $item.stock > 0 }}"}, ALL) == [TEA, CUP]
    assert kept({"expression": "$index % 2"}, [5, 6, 7, 8]) == [6, 8]
    assert kept({"expression": "$item"}, [0, 1, "", "x", None, [], [0]]) == [1, "x", [0]]
    assert kept({"expression": True}, [1, 2]) == [1, 2]
    assert kept({"expression": "$item > 1"}, []) == []


IN_STOCK = {"field": "stock", "operator": ">", "value": 0}
IS_TEA = {"field": "kind", "operator": "==", "value": "tea"}


def test_rules_decide_on_each_element() -> None:
    assert kept({"rules": [IN_STOCK, IS_TEA]}, ALL) == [TEA]
    assert kept({"rules": [IN_STOCK, IS_TEA], "match": "any"}, ALL) == ALL
    assert kept({"rules": [{"field": "from.country", "operator": "exists"}]}, ALL) == [TEA]
    assert kept({"rules": [{"field": "from", "operator": "exists", "value": False}]}, ALL) == [CUP, OUT]
    assert kept({"rules": [{"field": "1", "value": 2}]}, [[1, 2], [2, 1]]) == [[1, 2]]


def test_the_value_of_a_rule_may_be_computed() -> None:
    scope = {"$fetch": {"kind": "cup"}}
    parameters = {"input_array": "$trigger", "rules": [{"field": "kind", "value": "$fetch.kind"}]}
    assert output(run("filter", parameters, trigger=ALL, scope=scope))["items"] == [CUP]


def test_without_a_list_it_works_on_the_payload() -> None:
    assert output(run("filter", {"expression": "$item > 1"}, payload=[1, 2])) == {
        "items": [2],
        "count": 1,
        "original_count": 2,
    }


@pytest.mark.parametrize(
    ("parameters", "told"),
    [
        ({"expression": "$item.from.country == 'CN'"}, "parameters.expression: $item.from"),
        ({"rules": [IN_STOCK, {"field": "from.x", "value": 1}]}, "parameters.rules[1].field: $item.from"),
        ({"rules": [{"field": "kind", "operator": ">", "value": 1}]}, "parameters.rules[0]: "),
    ],
)
def test_a_condition_that_cannot_be_evaluated_fails(parameters: dict[str, Any], told: str) -> None:
    found = error(run("filter", parameters, payload=ALL))
    assert found.code == "EXPRESSION_ERROR"
    assert found.message.startswith(told)


@pytest.mark.parametrize("value", [{"a": 1}, "text", 5, None])
def test_what_is_not_a_list_fails(value: Any) -> None:
    for type, rest in (("filter", {"expression": "true"}), ("sort", {}), ("limit", {"count": 1})):
        given = error(run(type, {"input_array": "$trigger", **rest}, payload=[1], trigger=value))
        default = error(run(type, rest, payload=value))
        assert given.code == default.code == "BAD_PARAMETER"
        assert "parameters.input_array" in given.message
