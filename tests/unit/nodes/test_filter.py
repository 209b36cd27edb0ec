"""The `filter` node."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.nodes.runner import error, output, run

TEA = {"id": 1, "kind": "tea", "price": 3, "stock": 2, "from": {"country": "CN"}}
CUP = {"id": 2, "kind": "cup", "price": 9, "stock": 1}
SOLD_OUT = {"id": 3, "kind": "tea", "price": 5, "stock": 0}
ALL = [TEA, CUP, SOLD_OUT]


def filtered(parameters: dict[str, Any], items: list[Any]) -> list[Any]:
    found = output(run("filter", {"input_array": "$trigger", **parameters}, trigger=items))
    assert (found["count"], found["original_count"]) == (len(found["items"]), len(items))
    kept: list[Any] = found["items"]
    return kept


def test_expression_selects_elements() -> None:
    assert filtered({"expression": "$item.stock > 0"}, ALL) == [TEA, CUP]
    assert filtered({"expression": "{{ $item.stock > 0 }}"}, ALL) == [TEA, CUP]
    assert filtered({"expression": "$index % 2"}, [5, 6, 7, 8]) == [6, 8]
    assert filtered({"expression": "$item"}, [0, 1, "", "x", None, [], [0]]) == [1, "x", [0]]
    assert filtered({"expression": True}, [1, 2]) == [1, 2]
    assert filtered({"expression": "$item > 1"}, []) == []


IN_STOCK = {"field": "stock", "operator": ">", "value": 0}
IS_TEA = {"field": "kind", "operator": "==", "value": "tea"}


def test_rules_select_elements() -> None:
    assert filtered({"rules": [IN_STOCK, IS_TEA]}, ALL) == [TEA]
    assert filtered({"rules": [IN_STOCK, IS_TEA], "match": "any"}, ALL) == ALL
    assert filtered({"rules": [{"field": "from.country", "operator": "exists"}]}, ALL) == [TEA]
    assert filtered({"rules": [{"field": "from", "operator": "exists", "value": False}]}, ALL) == [
        CUP,
        SOLD_OUT,
    ]
    assert filtered({"rules": [{"field": "1", "value": 2}]}, [[1, 2], [2, 1]]) == [[1, 2]]


def test_rule_value_may_be_expression() -> None:
    scope = {"$fetch": {"kind": "cup"}}
    parameters = {"input_array": "$trigger", "rules": [{"field": "kind", "value": "$fetch.kind"}]}
    assert output(run("filter", parameters, trigger=ALL, scope=scope))["items"] == [CUP]


def test_payload_is_default_input() -> None:
    assert output(run("filter", {"expression": "$item > 1"}, payload=[1, 2])) == {
        "items": [2],
        "count": 1,
        "original_count": 2,
    }


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"expression": "$item.from.country == 'CN'"}, "parameters.expression: $item.from"),
        ({"rules": [IN_STOCK, {"field": "from.x", "value": 1}]}, "parameters.rules[1].field: $item.from"),
        ({"rules": [{"field": "kind", "operator": ">", "value": 1}]}, "parameters.rules[0]: "),
    ],
)
def test_failing_condition_fails_node_with_path(parameters: dict[str, Any], message: str) -> None:
    found = error(run("filter", parameters, payload=ALL))
    assert found.code == "EXPRESSION_ERROR"
    assert found.message.startswith(message)


@pytest.mark.parametrize("value", [{"a": 1}, "text", 5, None])
def test_non_list_input_fails(value: Any) -> None:
    for type, rest in (("filter", {"expression": "true"}), ("sort", {}), ("limit", {"count": 1})):
        given = error(run(type, {"input_array": "$trigger", **rest}, payload=[1], trigger=value))
        default = error(run(type, rest, payload=value))
        assert given.code == default.code == "BAD_PARAMETER"
        assert "parameters.input_array" in given.message


FIELDS: list[Any] = [{"price": 3}, {"sku": 1}, {"price": None}, {"price": 1}]
EXISTS = {"field": "price", "operator": "exists"}


@pytest.mark.parametrize(
    ("parameters", "kept"),
    [
        ({"rules": [EXISTS, {"field": "price", "operator": "==", "value": 3}]}, [{"price": 3}]),
        ({"rules": [{**EXISTS, "value": False}]}, [{"sku": 1}]),
        ({"expression": "($item.price ?? 0) > 2"}, [{"price": 3}]),
        ({"expression": "default($item.price, 0) > 2"}, [{"price": 3}]),
    ],
)
def test_condition_may_allow_for_elements_without_the_field(parameters: dict[str, Any], kept: Any) -> None:
    assert output(run("filter", parameters, payload=FIELDS))["items"] == kept


def test_default_of_get_does_not_replace_null() -> None:
    found = error(run("filter", {"expression": 'get($item, "price", 0) > 2'}, payload=FIELDS))

    assert (found.code, "element 2" in found.message) == ("EXPRESSION_ERROR", True)
