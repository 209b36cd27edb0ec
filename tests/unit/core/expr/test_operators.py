"""Operators: values, precedence and rejected operands."""

from __future__ import annotations

from typing import Any

import pytest

from rune.core.expr import ExpressionError
from tests.unit.core.expr.evaluation import evaluate, same, trigger

VALUES: list[tuple[str, Any]] = [
    # precedence
    ("false or true and false", False),
    ("true or false and false", True),
    ("true || false && false", True),
    ("!($trigger.five > 3)", False),
    ("not $trigger.five > 3 and true", False),
    ("!$trigger.five == 4", True),
    ("1 + 2 * 3", 7),
    ("(1 + 2) * 3", 9),
    ("10 - 2 - 3", 5),
    ("1 < $trigger.five < 6", True),
    ("1 < $trigger.five < 5", False),
    ("3 > 2 > 1 == 1", True),
    ("7 % 4 + 7 / 2", 6.5),
    ("-$trigger.five + 1", -4),
    ("+$trigger.five", 5),
    ("2 * 3 == 6 and not 1 > 2", True),
    ("-2 ** 2", -4),
    ("2 ** 3 ** 2", 512),
    ("2 ** -1", 0.5),
    ("(-8) ** 3", -512),
    ("(-8) ** 2.0", 64.0),
    ("2.0 ** 3", 8.0),
    ("0 ** 0", 1),
    ("7 // 2", 3),
    ("-7 // 2", -4),
    ("-7 % 3", 2),
    ("6 / 2", 3.0),
    # the default operator
    ("$trigger.gone ?? 1 + 1", 2),
    ("$trigger.five ?? 1 + 1", 5),
    ("$trigger.five ?? 2 > 3", True),
    ("$trigger.five ?? 0 == 5", True),
    ("$trigger.gone ?? $trigger.nil ?? 3", 3),
    ("$trigger.gone ?? $trigger.nil", None),
    ("$trigger.nil ?? 'd'", "d"),
    ("$trigger.a.b.c ?? 0", 0),
    ("$trigger.zero ?? 5", 0),
    ("$trigger.text ?? 5", ""),
    ("$trigger.gone + 1 ?? 2", 2),
    ("[x.gone for x in $a.rows] ?? []", []),
    ("$trigger.l[9] ?? 'none'", "none"),
    ("$trigger.five.x ?? 'none'", "none"),
    ("$json.k.gone ?? $item.v", 1),
    ("($trigger.gone ?? 4) * 2", 8),
    # sums and repetition
    ("'a' + 'b'", "ab"),
    ("[1] + [2]", [1, 2]),
    ("1 + 2.5", 3.5),
    ("'ab' * 2", "abab"),
    ("2 * 'ab'", "abab"),
    ("[1] * 2", [1, 1]),
    ("2 * [1]", [1, 1]),
    ("'a' * -1", ""),
    ("9007199254740993 + 1", 9007199254740994),
    ("9223372036854775807 * 3", 27670116110564327421),
    # logical operators return an operand
    ("0 or 'x'", "x"),
    ("1 and []", []),
    ("null or 0", 0),
    ("1 and 2 and 3", 3),
    ("0 and $trigger.gone", 0),
    ("1 or $trigger.gone", 1),
    ("not []", True),
    ("!!'a'", True),
    # membership
    ("[10, 20] contains 1", False),
    ("[10, 20] contains 20", True),
    ("[10, 20] contains 20.0", True),
    ("[10, 20] contains '10'", False),
    ("[1] contains true", False),
    ("[[1], {'a': 2}] contains {'a': 2.0}", True),
    ("'hello world' contains 'world'", True),
    ("'b' in ['a', 'b']", True),
    ("'x' not in ['a', 'b']", True),
    ("['a'] not contains 'x'", True),
    ("['a'] not contains 'a'", False),
    ("$trigger.o contains 'k'", True),
    ("$trigger.o contains 'v'", False),
    ("'k' in $trigger.o", True),
    ("1 in [1] == true", False),
    ("'a >= b contains c' == 'a >= b contains c'", True),
    # conditional expressions
    ("$trigger.five > 3 ? 'big' : 'small'", "big"),
    ("'big' if $trigger.five > 30 else 'small'", "small"),
    ("0 ? 1 : 0 ? 2 : 3", 3),
    ("1 ? 0 ? 'a' : 'b' : 'c'", "b"),
    ("1 ? {'a': 1} : 2", {"a": 1}),
    ("{'a': 1 ? 2 : 3, 'b': 0 ? 2 : 3}", {"a": 2, "b": 3}),
    ("[1, 2, 3, 4][1 ? 1 : 2 : 3]", [2, 3]),
    ("1 ? 2 : 3 if 0 else 4", 2),
    ("1?.5:.25", 0.5),
    ("0?.5:.25", 0.25),
    ("1 if 1 else 0 ? 2 : 3", 1),
    ("[x > 1 ? 'b' : 's' for x in [1, 2]]", ["s", "b"]),
    # pipes
    ("'  ada ' | trim | upper", "ADA"),
    ("$trigger.gone ?? 'ada' | upper", "ADA"),
    ("1 ? 'a' : 'b' | upper", "A"),
    ("1 ? 'a' | upper : 'b'", "A"),
    ("'a,b' | split(',') | join('-')", "a-b"),
    ("[x | upper for x in ['b', 'a'] | sorted]", ["A", "B"]),
    ("[x for x in [1, 0, 2] if x | bool]", [1, 2]),
    ("{'k': 'a' | upper}", {"k": "A"}),
    ("[3, 1] | sorted(reverse='a' | starts_with('a'))", [3, 1]),
    ("len('ab' | split | first)", 2),
    ("('a' | upper) + 'b'", "Ab"),
    ("$trigger.gone | exists", False),
    ("$trigger.nil | exists", True),
    ("$trigger.gone | default('d')", "d"),
    ("$trigger.gone | upper | default('d')", "d"),
    ("$trigger.gone | default('d') | upper", "D"),
    ("'a' | default('d') | exists", True),
]


@pytest.mark.parametrize(("source", "expected"), VALUES, ids=[source for source, _ in VALUES])
def test_operator_value(source: str, expected: Any) -> None:
    found = evaluate(source)
    assert same(found, expected), found


EQUAL = [
    ("1", "1.0", True),
    ("[1.0, {'a': 2}]", "[1, {'a': 2.0}]", True),
    ("{'a': 1, 'b': 2}", "{'b': 2, 'a': 1}", True),
    ("null", "null", True),
    ("true", "true", True),
    ("'x'", "'x'", True),
    ("'007'", "'7'", False),
    ("null", "false", False),
    ("''", "null", False),
    ("'1'", "1", False),
    ("true", "1", False),
    ("false", "0", False),
    ("[true]", "[1]", False),
    ("{'a': true}", "{'a': 1}", False),
    ("[1]", "[1, 2]", False),
    ("{'a': 1}", "{'a': 1, 'b': 2}", False),
    ("{'a': 1}", "{'b': 1}", False),
    ("[]", "{}", False),
    ("9007199254740993", "9007199254740992", False),
    ("9007199254740993", "9007199254740992.0", False),
]


@pytest.mark.parametrize(("left", "right", "expected"), EQUAL)
def test_equality_follows_json(left: str, right: str, expected: bool) -> None:
    assert evaluate(f"{left} == {right}") is expected
    assert evaluate(f"{right} == {left}") is expected
    assert evaluate(f"{left} != {right}") is not expected
    assert evaluate(f"[x == {right} for x in [{left}]]") == [expected]


def test_equality_of_payload_values() -> None:
    assert trigger("$trigger[0] == $trigger[1]", [{"a": [1]}, {"a": [1.0]}]) is True
    assert trigger("$trigger[0] == $trigger[1]", [{"a": [1]}, {"b": [1]}]) is False


def test_equality_with_constants() -> None:
    assert trigger("$trigger == 1", 1.0) is True
    assert trigger("$trigger == 1", True) is False
    assert trigger("$trigger == true", True) is True
    assert trigger("$trigger == 'x'", "x") is True
    assert trigger("$trigger == null", None) is True
    assert trigger("$trigger == -1", -1) is True


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, False),
        (False, False),
        (0, False),
        (0.0, False),
        ("", False),
        ([], False),
        ({}, False),
        ("0", True),
        ("false", True),
        (" ", True),
        ([0], True),
        (-1, True),
        ({"a": None}, True),
    ],
)
def test_truthiness(value: Any, expected: bool) -> None:
    assert trigger("true if $trigger else false", value) is expected
    assert trigger("$trigger ? true : false", value) is expected
    assert trigger("bool($trigger)", value) is expected
    assert trigger("!$trigger", value) is not expected


@pytest.mark.parametrize(
    ("source", "expected"),
    [("1 < 2", True), ("2 <= 2.0", True), ("'a' < 'b'", True), ("2 > 1", True), ("'b' >= 'c'", False)],
)
def test_order_comparison(source: str, expected: bool) -> None:
    assert evaluate(source) is expected


@pytest.mark.parametrize("operator", ["<", "<=", ">", ">="])
@pytest.mark.parametrize(
    "pair", ["'200' {} 100", "1 {} '1'", "true {} 0", "null {} 1", "[] {} []", "{{}} {} {{}}"]
)
def test_order_of_mixed_types_is_rejected(operator: str, pair: str) -> None:
    with pytest.raises(ExpressionError, match="cannot compare the order of"):
        evaluate(pair.format(operator))


REJECTED = [
    ("1 + '1'", "cannot add a number and text"),
    ("true + 1", "cannot add a boolean and a number"),
    ("null + null", "cannot add null and null"),
    ("{} + {}", "cannot add an object and an object"),
    ("'a' - 'a'", "cannot subtract text and text"),
    ("'a' * 'a'", "cannot multiply text and text"),
    ("'a' * 1.5", "cannot multiply"),
    ("null * 2", "cannot multiply"),
    ("'%s' % 1", "cannot divide text and a number"),
    ("1 / 'a'", "cannot divide"),
    ("[] // 1", "cannot divide"),
    ("1 / 0", "division by zero"),
    ("1 // 0.0", "division by zero"),
    ("1 % 0", "division by zero"),
    ("0 ** -1", "division by zero"),
    ("'a' ** 2", "cannot raise"),
    ("(-8) ** 0.5", "no such power"),
    ("-'a'", "cannot negate text"),
    ("-true", "cannot negate a boolean"),
    ("+null", r"\+ needs a number, not null"),
    ("1e308 * 10", "not a finite number"),
    ("1e308 + 1e308", "not a finite number"),
    ("2.0 ** 5000", "out of range"),
    ("10 ** 1000 / 1", "out of range"),
    ("10 ** 1000 + 0.5", "out of range"),
    ("2 ** 5000", "limit: 4096 bits"),
    ("3 ** 4000", "limit: 4096 bits"),
    ("2 ** 4000 * 2 ** 4000", "limit: 4096 bits"),
    ("1 in 1", "cannot look for a number in a number"),
    ("1 in '1'", "cannot look for a number in text"),
    ("1 in {}", "cannot look for a number in an object"),
    ("'a' in null", "cannot look for text in null"),
]


@pytest.mark.parametrize(("source", "message"), REJECTED)
def test_invalid_operands_raise_expression_error(source: str, message: str) -> None:
    with pytest.raises(ExpressionError, match=message) as caught:
        evaluate(source)
    assert caught.value.code == "EXPRESSION_ERROR"


def test_non_json_value_is_rejected() -> None:
    with pytest.raises(ExpressionError, match="not JSON"):
        trigger("$trigger + 1", object())
    with pytest.raises(ExpressionError, match="not JSON"):
        trigger("$trigger.real", (1, 2))


def test_operators_short_circuit() -> None:
    assert evaluate("false and $trigger.gone") is False
    assert evaluate("2 < 1 < $trigger.gone") is False
    assert evaluate("1 ? 2 : $trigger.gone") == 2
    assert evaluate("1 ?? $trigger.gone") == 1
