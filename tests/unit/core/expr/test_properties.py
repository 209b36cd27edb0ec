"""Any text compiles or raises a syntax error; any evaluation gives JSON or an expression error."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from rune.core.expr import (
    FUNCTIONS,
    OPERATORS,
    ExpressionError,
    ExpressionSyntaxError,
    ExpressionSyntaxErrors,
    compile_expression,
    compile_template,
    is_dynamic,
    json_equal,
    to_text,
)
from tests.unit.core.expr.evaluation import NAMES, is_plain

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(10**400), 10**400)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8"), max_size=8)
)
JSON = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["x", "y", "k", "a b"]), inner, max_size=4)
    ),
    max_leaves=12,
)
WORDS = [
    *FUNCTIONS, *OPERATORS,
    "+", "-", "*", "/", "//", "%", "**", "(", ")", "[", "]", "{", "}", ",", ":", ".", "?", "??", "|", "||",
    "&&", "!", "=",
    "and", "or", "not", "if", "else", "for", "true", "false", "null", "x", "y", "k", "0", "1", "2.5",
    "'x'", "'", "r'x'",
    "$trigger", "$a", "$b.x", "$trigger.x", "$trigger.y[0]", "fetch", "my-node", "$node.a", "$item", "{{",
    "}}", "$", "$$",
]  # fmt: skip
SOURCES = st.text(max_size=40) | st.lists(st.sampled_from(WORDS), max_size=14).map(" ".join)


@st.composite
def _expressions(draw: st.DrawFn, depth: int = 4) -> str:
    """A well-formed expression."""
    if depth == 0:
        leaf = st.sampled_from(
            ["$trigger", "$trigger.x", "$trigger['a b']", "$trigger.k[0]", "$a", "null", "true"]
        )
        return draw(
            leaf | st.integers(-9, 99).map(str) | st.sampled_from(["'x'", "1.5", "[]", "{}", "'a b'"])
        )
    inner = _expressions(depth - 1)
    shape = draw(
        st.sampled_from(
            [
                "({} + {})", "({} - {})", "({} * {})", "({} / {})", "({} % {})", "({} ** {})", "({} // {})",
                "({} == {})", "({} != {})", "({} < {})", "({} >= {})", "({} in {})", "({} contains {})",
                "({} and {})", "({} or {})", "(not {})", "(-{})", "({} ?? {})", "({} ? {} : {})",
                "[{}, {}]", "{{'k': {}, 'x': {}}}", "{}[{}]", "{}[{}:]", "{}.x", "[v for v in {} if {}]",
                "{{str(v): {} for v in {}}}", "[v.x ?? {} for v in {}]", "exists({})", "default({}, {})",
                "({} | {fn})", "{fn}({})", "{fn}({}, {})", "{fn}({}, {}, {})",
            ]
        )
    )  # fmt: skip
    count = shape.replace("{{", "").replace("{fn}", "").count("{}")
    return shape.format(*(draw(inner) for _ in range(count)), fn=draw(st.sampled_from(sorted(FUNCTIONS))))


EXPRESSIONS = _expressions()


@given(SOURCES)
@settings(max_examples=400, deadline=None)
def test_any_text_compiles_or_raises_syntax_error(source: str) -> None:
    offsets = []
    try:
        offsets = [each.offset for each in compile_expression(source, NAMES).references]
    except ExpressionSyntaxError as error:
        offsets = [error.offset]
    assert all(0 <= offset <= len(source) for offset in offsets)


@given(
    st.recursive(
        SOURCES | st.integers(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    )
)
@settings(max_examples=200, deadline=None)
def test_any_template_compiles_or_raises_syntax_errors(value: Any) -> None:
    problems: list[ExpressionSyntaxError] | None = None
    try:
        compile_template(value, NAMES)
    except ExpressionSyntaxErrors as error:
        problems = error.errors
    assert problems is None or problems


@given(SOURCES)
@settings(max_examples=200, deadline=None)
def test_static_text_resolves_to_itself(text: str) -> None:
    if not is_dynamic(text, NAMES):
        template = compile_template(text, NAMES)
        assert template.constant
        assert template.resolve({}) == text.replace("$$", "$")


@given(EXPRESSIONS, JSON, JSON)
@settings(max_examples=400, deadline=None)
def test_any_evaluation_gives_json_or_expression_error(source: str, payload: Any, other: Any) -> None:
    scope = {"$trigger": payload, "$a": other, "@now": 0.0, "@seed": "s"}
    before = json.dumps(scope)
    try:
        value = compile_expression(source, NAMES).evaluate(scope)
        text = compile_template("a{{" + source + "}}", NAMES).resolve(scope)
    except (ExpressionError, ExpressionSyntaxError, ExpressionSyntaxErrors):
        pass
    else:
        assert is_plain(value)
        json.dumps(value, allow_nan=False)
        assert text == "a" + to_text(value)
    assert json.dumps(scope) == before


@given(EXPRESSIONS, JSON)
@settings(max_examples=100, deadline=None)
def test_evaluation_is_repeatable(source: str, payload: Any) -> None:
    scope = {"$trigger": payload, "@now": 0.0, "@seed": "s"}
    found = []
    for _ in range(2):
        try:
            found.append(json.dumps(compile_expression(source, NAMES).evaluate(scope)))
        except (ExpressionError, ExpressionSyntaxError) as error:
            found.append(error.message)
    assert found[0] == found[1]


@given(JSON)
def test_value_equals_its_copy(value: Any) -> None:
    assert json_equal(value, json.loads(json.dumps(value)))
    assert OPERATORS["=="](value, value)
    assert json_equal([value], [[value]]) is False


@given(JSON, JSON)
def test_equality_is_symmetric(a: Any, b: Any) -> None:
    assert json_equal(a, b) is json_equal(b, a)


@given(st.dictionaries(st.text(st.characters(codec="utf-8")), JSON, max_size=3))
def test_any_key_can_be_looked_up(payload: dict[str, Any]) -> None:
    for key, expected in payload.items():
        source = f"$trigger[{json.dumps(key)}]"
        assert compile_expression(source, NAMES).evaluate({"$trigger": payload}) is expected
        assert compile_template(source, NAMES).resolve({"$trigger": payload}) is expected
