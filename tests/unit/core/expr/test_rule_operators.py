"""Operators of rules."""

from __future__ import annotations

from typing import Any

import pytest

from rune.core.expr import MISSING, OPERATORS, ExpressionError, json_equal, to_text, truthy

RULES: list[tuple[Any, str, Any, bool]] = [
    (1, "==", 1.0, True),
    ("007", "eq", "7", False),
    (1, "!=", True, True),
    (1, "neq", 1, False),
    (2, ">", 1, True),
    (2, "gt", 2, False),
    (2, ">=", 2, True),
    ("b", "gte", "a", True),
    (1, "<", 1.5, True),
    (1, "lt", 1, False),
    (1, "<=", 1, True),
    ("b", "lte", "a", False),
    ([1, 2], "contains", 2, True),
    ("abc", "contains", "b", True),
    ({"k": 1}, "contains", "k", True),
    ("b", "in", ["a", "b"], True),
    ("z", "in", "abc", False),
    ("abc", "starts_with", "ab", True),
    ("abc", "ends_with", "ab", False),
    ("order-42", "matches", "[0-9]+$", True),
    (None, "exists", None, True),
    (MISSING, "exists", None, False),
    (0, "exists", True, True),
    (MISSING, "exists", False, True),
    (0, "exists", False, False),
]


@pytest.mark.parametrize(("left", "operator", "right", "expected"), RULES)
def test_rule_result(left: Any, operator: str, right: Any, expected: bool) -> None:
    assert OPERATORS[operator](left, right) is expected


@pytest.mark.parametrize(
    ("left", "operator", "right"),
    [("200", ">", 100), (True, "<", 1), (1, "contains", 1), (1, "starts_with", "1"), ("a", "matches", "(")],
)
def test_invalid_rule_raises_expression_error(left: Any, operator: str, right: Any) -> None:
    with pytest.raises(ExpressionError):
        OPERATORS[operator](left, right)


def test_operator_table_is_complete() -> None:
    plain = "== != > >= < <= contains in starts_with ends_with matches exists"
    assert sorted(OPERATORS) == sorted([*plain.split(), "eq", "neq", "gt", "gte", "lt", "lte"])


def test_exported_value_helpers() -> None:
    assert repr(MISSING) == "MISSING"
    assert json_equal([1], [1.0])
    assert not truthy([])
    assert [to_text(each) for each in ("a", None, True, 3, [1])] == ["a", "", "true", "3", "[1]"]
