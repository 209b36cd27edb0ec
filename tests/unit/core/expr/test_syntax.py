"""Syntax of expressions, and the position of syntax errors."""

from __future__ import annotations

from typing import Any

import pytest

from rune.core.expr import ExpressionSyntaxError, compile_expression
from tests.unit.core.expr.evaluation import NAMES, evaluate, same, trigger

LITERALS: list[tuple[str, Any]] = [
    ("null", None),
    ("true", True),
    ("false", False),
    ("None", None),
    ("True", True),
    ("False", False),
    ("0", 0),
    ("1.50", 1.5),
    ("1e3", 1000.0),
    ("1E-2", 0.01),
    ("2e+1", 20.0),
    (".5", 0.5),
    ("[.5, .5]", [0.5, 0.5]),
    ("-3", -3),
    ("- -3", 3),
    ("-1.5", -1.5),
    ("'it\\'s'", "it's"),
    ('"a\\"b"', 'a"b'),
    ("'\\n\\t\\r\\b\\f\\v\\0\\\\\\/'", "\n\t\r\b\f\v\0\\/"),
    ("'\\x41\\u00e9\\U0001F600'", "Aé😀"),
    ("'\\ud83d\\ude00'", "😀"),
    ("'\\d\\q'", "\\d\\q"),
    ("r'\\d\\'x'", "\\d\\'x"),
    ("'a\nb'", "a\nb"),
    ("'$a {{ x }} // ?? | && contains'", "$a {{ x }} // ?? | && contains"),
    ("[]", []),
    ("[1, 'a', [null]]", [1, "a", [None]]),
    ("[1, 2,]", [1, 2]),
    ("{}", {}),
    ("{'a': 1, 'b': {'c': []}}", {"a": 1, "b": {"c": []}}),
    ("{'a': 1, 'a': 2}", {"a": 2}),
    ("{'a' + 'b': 1}", {"ab": 1}),
    ("(1)", 1),
    (" \t\r\n 1 \n", 1),
    ("1\n+\n1", 2),
    ("{{ 1 + 1 }}", 2),
    ("  {{ {'a': {'b': 1}} }} ", {"a": {"b": 1}}),
    ("{{'}}'}}", "}}"),
]


@pytest.mark.parametrize(("source", "expected"), LITERALS, ids=[source for source, _ in LITERALS])
def test_literal_value(source: str, expected: Any) -> None:
    found = evaluate(source)
    assert same(found, expected), found


LOOPS: list[tuple[str, Any]] = [
    ("[x.n * 2 for x in $a.rows if x.n > 1]", [4]),
    ("[x for x in []]", []),
    ("[n + $trigger.five for n in [1, 2]]", [6, 7]),
    ("[[x, y] for x in [1, 2] for y in [3, 4] if x + y > 4]", [[1, 4], [2, 3], [2, 4]]),
    ("[y for x in [[1], [2, 3]] for y in x]", [1, 2, 3]),
    ("[[y * 10 for y in x] for x in [[1], [2]]]", [[10], [20]]),
    ("[x for x in [1, 2, 3, 4] if x > 1 if x < 4]", [2, 3]),
    ("[k + v for k, v in items({'a': 'b'})]", ["ab"]),
    ("[k for (k, v) in [['a', 1]]]", ["a"]),
    ("{k: v * 2 for k, v in items({'a': 1})}", {"a": 2}),
    ("{x: len(x) for x in ['a', 'bb'] if x != 'a'}", {"bb": 2}),
    ("[k for k in {'x': 1}]", ["x"]),
    ("(x for x in [1])", [1]),
    ("sum(x for x in [1, 2])", 3),
    ("[x for x in [x for x in [1, 2]]]", [1, 2]),
    ("[x if x > 1 else 0 for x in [1, 2]]", [0, 2]),
    ("[x in [1] for x in [1, 2]]", [True, False]),
    ("['a' in x for x in ['ab'] if 'b' in x]", [True]),
    ("[x for x in ([1] if 1 else [2])]", [1]),
    ("[größe for größe in [1]]", [1]),
    ("[_ for _ in [1]]", [1]),
]


@pytest.mark.parametrize(("source", "expected"), LOOPS, ids=[source for source, _ in LOOPS])
def test_loop_value(source: str, expected: Any) -> None:
    found = evaluate(source)
    assert same(found, expected), found


def test_keywords_after_dot_are_keys() -> None:
    words = {
        "in": 1,
        "if": 2,
        "for": 3,
        "null": 4,
        "contains": 5,
        "class": 6,
        "not": 7,
        "items": 8,
        "größe": 9,
    }
    for word, expected in words.items():
        assert trigger(f"$trigger.{word}", words) == expected


def test_names_are_not_normalised() -> None:
    # Python normalises both names to "fi".
    assert trigger("[$trigger.ﬁ, $trigger.fi]", {"ﬁ": 1, "fi": 2}) == [1, 2]


ERRORS = [
    ("", 0, "empty"),
    ("  \n ", 0, "empty"),
    ("1 +", 3, "ends too early"),
    ("$trigger.x ==", 13, "ends too early"),
    ("1 2", 0, "cannot be read near 1 2"),
    ("1 + * 2", 4, r"cannot be read near \* 2"),
    ("(1", 0, r"\( is not closed.*\) is missing"),
    ("[1, 2", 0, r"\[ is not closed"),
    ("1 ? 2", 2, r"\? is not closed.*: is missing"),
    ("1)", 1, r"unexpected \)"),
    ("(1]", 2, r"unexpected \].*the \( at character 1 is still open"),
    ("(1 ? 2)", 6, r"unexpected \).*the \? at character 4 is still open"),
    ("'abc", 0, "text is not closed"),
    ("'abc\\'", 0, "text is not closed"),
    ("1 : 2", 2, "unexpected :"),
    ("(1 : 2)", 3, "unexpected :"),
    ("lambda x: 1", 8, "unexpected :"),
    ("x = 1", 2, "unexpected =.*use == to compare"),
    ("[x = 1]", 3, "unexpected ="),
    ("(x = 1)", 1, "cannot be read"),
    ("1 & 2", 2, "unexpected character &"),
    ("1 ^ 2", 2, "unexpected character"),
    ("~1", 0, "unexpected character ~"),
    ("a;b", 1, "unexpected character ;"),
    ("1 # x", 2, "unexpected character #"),
    ("1\u00a0+ 1", 1, "unexpected character U\\+00A0"),
    ("\x00", 0, "unexpected character U\\+0000"),
    ("\ud800", 0, "unexpected character U\\+D800"),
    ("'\ud800'", 0, "half of a surrogate pair"),
    ("'\\ud800'", 0, "half of a surrogate pair"),
    ("'\\x4'", 1, r"\\x needs 2 hexadecimal digits"),
    ("'\\uZZZZ'", 1, r"\\u needs 4"),
    ("'\\U00110000'", 1, r"\\U needs 8"),
    ("f'{x}'", 0, "unexpected f before a text"),
    ("b'x'", 0, "unexpected b before a text"),
    ("r'x", 1, "text is not closed"),
    ("'a' 'b'", 0, "cannot be read near 'a' 'b'"),
    ("007", 0, "not a number: 007"),
    ("1_000", 0, "not a number: 1_"),
    ("0x10", 0, "not a number"),
    ("1j", 0, "not a number"),
    ("1e", 0, "not a number"),
    ("1e+", 0, "not a number"),
    ("1e999", 0, "too large"),
    ("9" * 1234, 0, "limit: 4096 bits"),
    ("contains('abc', 'a')", 0, "contains is an operator between two values.*; write a contains b$"),
    ("'abc' | contains('a')", 8, "contains is an operator"),
    ("not contains('abc', 'a')", 4, "contains is an operator"),
    ("1 + contains('abc', 'a')", 4, "contains is an operator"),
    ("[contains]", 1, "contains is an operator"),
    ("'abc' contains contains", 15, "contains is an operator"),
    ("in(1, [1])", 0, "in is an operator.*; write a in b$"),
    ("and(true, false)", 0, "and is an operator.*; write a and b$"),
    ("or(true, false)", 0, "or is an operator.*; write a or b$"),
    ("if(true, 1, 2)", 0, "if is an operator.*; write a if condition else b$"),
    ("$a.0", 3, r"a name is missing after the dot.*write \[0\]"),
    ("$a.'b'", 3, "a name is missing after the dot"),
    ("$a..b", 3, "cannot be read"),
    ("1, 2", 0, "a comma is only allowed between elements"),
    ("()", 0, "a comma is only allowed between elements"),
    ("$a[1, 2]", 3, "a comma is only allowed between elements"),
    ("{1, 2}", 0, "a set is not a JSON value"),
    ("{x for x in [1]}", 0, "a set is not a JSON value"),
    ("[*[1]]", 1, r"\* does not unpack here.*joined with \+"),
    ("{**$a}", 3, r"\*\* does not unpack here.*merge"),
    ("x for x in [1]", 2, "a loop must be in brackets"),
    ("[1 ? x for x in [1] : 2]", 7, "a loop must be in brackets"),
    ("[x for $a in [1]]", 7, "a loop variable is a plain name"),
    ("[x for a.b in [1]]", 7, "a loop variable is a plain name"),
    ("[x for x, (y, z) in [1]]", 10, "a loop variable is a plain name"),
    ("1 ? 2, 3 : 4", 2, "exactly one value is required between"),
    ("'a' | ", 6, r"a function is missing after \|"),
    ("('a' | upper | )", 15, r"a function is missing after \|"),
    ("| upper", 0, "cannot be read"),
    ("not", 3, "ends too early"),
    ("1 not contains", 14, "ends too early"),
    ("$a.__class__", 3, "two underscores are not allowed: __class__"),
    ("__import__('os')", 0, "two underscores"),
    ("$a.＿＿class__", 3, "unexpected character ＿"),
    ("$a._＿class__", 4, "unexpected character ＿"),
    ("$a.__ｃlass__", 3, "two underscores"),
    ("[__x for __x in [1]]", 1, "two underscores"),
    ("  {{ $a.__x }}", 8, "two underscores"),
    ("{{ 1 +", 1, "."),
]


@pytest.mark.parametrize(("source", "offset", "message"), ERRORS, ids=[each[0][:40] for each in ERRORS])
def test_syntax_error_has_offset_and_message(source: str, offset: int, message: str) -> None:
    with pytest.raises(ExpressionSyntaxError, match=message) as caught:
        compile_expression(source, NAMES)
    assert caught.value.code == "EXPRESSION_SYNTAX"
    assert caught.value.offset == offset, caught.value.message
    assert f"at character {offset + 1}" in caught.value.message


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("{1: 2}", "the keys of an object are text, not a number"),
        ("{x: 1 for x in [null]}", "the keys of an object are text, not null"),
        ("[x for x in 'abc']", "cannot loop over text"),
        ("[x for x in null]", "cannot loop over null"),
        ("[x for x, y in [[1]]]", "cannot take 2 parts from a list"),
        ("[x for x, y in ['ab']]", "cannot take 2 parts from text"),
    ],
)
def test_invalid_loop_or_key_raises_expression_error(source: str, message: str) -> None:
    with pytest.raises(Exception, match=message) as caught:
        evaluate(source)
    assert getattr(caught.value, "code", "") == "EXPRESSION_ERROR"


def test_expression_keeps_its_source() -> None:
    assert compile_expression("1 + 1", NAMES).source == "1 + 1"
