"""Expressions built with Python's operators: their text, and what they refuse."""

from __future__ import annotations

from typing import Any

import pytest

from rune.build import Workflow, expr, fn, log, template
from rune.build.expressions import Expr, Function, Ref, plain
from rune.core.expr import Names, compile_expression
from rune.core.expr.functions import FUNCTIONS

A: Ref[Any] = Ref("$a")
B: Ref[Any] = Ref("$b")
SCOPE = {
    "$a": {"x": 3, "s": "ab", "list": [1, 2], "odd key": 5, "none": None, "items": {"len": 7}},
    "$b": 2,
    "@now": 0.0,
    "@seed": "s",
}


def value(made: Expr) -> Any:
    """What the engine computes for an expression."""
    names = Names(frozenset({"a", "b"}), {})
    return compile_expression(plain(made, expression=True), names).evaluate(SCOPE)


@pytest.mark.parametrize(
    ("made", "text", "expected"),
    [
        (A.x + 1 * B, "$a.x + 1 * $b", 5),
        ((A.x + 1) * B, "($a.x + 1) * $b", 8),
        (A.x - (B - 1), "$a.x - ($b - 1)", 2),
        (10 - A.x - B, "10 - $a.x - $b", 5),
        (2**B, "2 ** $b", 4),
        (-(A.x + 1), "-($a.x + 1)", -4),
        (A.x * -2, "$a.x * (-2)", -6),
        (A.x // 2 % 2, "$a.x // 2 % 2", 1),
        (7 / B, "7 / $b", 3.5),
        ((A.x == 3) & (B < 3), "$a.x == 3 and $b < 3", True),
        ((A.x == 4) | ~(B > 3), "$a.x == 4 or not $b > 3", True),
        (~((A.x == 3) & (B == 2)), "not ($a.x == 3 and $b == 2)", False),
        ((A.x < 4) == (B < 3), "($a.x < 4) == ($b < 3)", True),
        (A["odd key"], '$a["odd key"]', 5),
        (A["list"][0], "$a.list[0]", 1),
        (A["list"][-1], "$a.list[-1]", 2),
        (A["items"].len, "$a.items.len", 7),
        (fn.upper(A.s), "upper($a.s)", "AB"),
        (A.s | fn.upper | fn.len, "len(upper($a.s))", 2),
        (fn.choose(B == 2, "two", A.s), '"two" if $b == 2 else $a.s', "two"),
        (fn.choose(False, 1, fn.choose(True, 2, 3)), "1 if false else 2 if true else 3", 2),
        (fn.coalesce(A.missing, 0) + 1, "($a.missing ?? 0) + 1", 1),
        (fn.coalesce(A.missing, A.none) == None, "$a.missing ?? $a.none == null", True),  # noqa: E711
        (fn.contains(A["list"], B), "$b in $a.list", True),
        (fn.exists(A.y), "exists($a.y)", False),
        (
            fn.merge({"k": A.x}, {"q": [B, None, 'a"b']}),
            'merge({"k": $a.x}, {"q": [$b, null, "a\\"b"]})',
            None,
        ),
        (expr("$a.x ?? 0") * 2, "($a.x ?? 0) * 2", 6),
    ],
)
def test_operators_give_text_that_the_engine_evaluates_alike(made: Expr, text: str, expected: Any) -> None:
    assert plain(made, expression=True) == text
    if expected is not None:
        assert value(made) == expected


def test_reference_alone_stays_typed_and_expression_gets_braces() -> None:
    assert plain(A.x) == "$a.x"
    assert plain(A.x + 1) == "{{ $a.x + 1 }}"
    assert plain({"k": [A.x, A.x + 1]}) == {"k": ["$a.x", "{{ $a.x + 1 }}"]}


def test_reference_in_text_becomes_an_expression_in_braces() -> None:
    assert f"Hello {A.s} and {A.x + 1}!" == "Hello {{ $a.s }} and {{ $a.x + 1 }}!"


def test_template_is_used_as_it_stands() -> None:
    assert plain(template("{{$a}} of $b")) == "{{$a}} of $b"


@pytest.mark.parametrize(
    ("use", "hint"),
    [
        (lambda: bool(A.x), "a & b"),
        (lambda: A.x == 1 and B == 2, "has no truth value"),
        (lambda: not A.x, "~a"),
        (lambda: 1 if A.x > 1 else 2, "fn.choose"),
        (lambda: list(A.x), r"split\(\)"),
        (lambda: 1 in A.x, "fn.contains"),
        (lambda: len(A.x), "fn.len"),
        (A.s.upper, "fn.upper"),
        (lambda: f"{A.x:.2f}", "fn.round"),
        (lambda: A["list"][1:], "no slices"),  # type: ignore[index]
        (lambda: {A.x: 1}, "unhashable"),
        (lambda: plain(object()), "JSON or an expression"),
        (lambda: plain(fn.upper), "call it"),
        (lambda: template("a") + 1, "cannot be part of an expression"),
    ],
)
def test_use_that_python_cannot_record_raises_with_the_right_spelling(use: Any, hint: str) -> None:
    with pytest.raises(TypeError, match=hint):
        use()


def test_key_with_leading_underscore_is_written_in_brackets() -> None:
    with pytest.raises(AttributeError, match=r"write \['_x'\]"):
        _ = A._x

    assert plain(A["_x"]) == "$a._x"
    assert plain(A["__x"]) == '$a["__x"]'


def test_every_function_of_the_language_is_in_fn() -> None:
    known = {name for name, each in vars(fn).items() if isinstance(each, Function)}

    assert known == set(FUNCTIONS)


def test_expression_in_parameter_that_is_one_expression_has_no_braces() -> None:
    flow = Workflow("a")
    with flow:
        made = log("x", message=A.x + 1)

    assert made.parameters == {"message": "{{ $a.x + 1 }}"}
