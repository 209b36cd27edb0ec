"""Each hostile expression is refused, or gives plain JSON within the budget; nothing else happens."""

from __future__ import annotations

import copy
import json
import sys
from typing import Any

import pytest

from rune.core.expr import (
    ExpressionError,
    ExpressionSyntaxError,
    ExpressionSyntaxErrors,
    Names,
    compile_expression,
    compile_template,
)
from rune.core.expr.budget import MAX_BUILT_BYTES
from tests.unit.core.expr.hostile import hostile_expressions

NAMES = Names(frozenset({"a", "b-c"}), {"A title": "a"})
SCOPE: dict[str, Any] = {
    "$a": {
        "b": {"b": 1},
        "text": "hello",
        "list": [1, 2, 3],
        "rows": [{"n": 1}],
        "big": ["x" * 100] * 1000,
        "i": 0,
    },
    "$json": {"x": 1},
    "$item": 1,
    "@now": 1_700_000_000.0,
    "@seed": "seed",
}
EXPRESSIONS = hostile_expressions()
# What the interpreter does when code is run, imported, or a file or process is opened.
FORBIDDEN = (
    "exec",
    "import",
    "open",
    "os.",
    "subprocess.",
    "socket.",
    "ctypes.",
    "object.__getattr__",
    "code.__new__",
)


class Watch:
    """Notes what the interpreter reports about itself while an expression is compiled and evaluated."""

    def __init__(self) -> None:
        self.active = False
        self.seen: list[str] = []
        sys.addaudithook(self._hook)

    def _hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.active and event.startswith(FORBIDDEN):
            self.seen.append(f"{event} {arguments!r}")


WATCH = Watch()


def is_plain(value: Any) -> bool:
    if type(value) is list:
        return all(map(is_plain, value))
    if type(value) is dict:
        return all(type(key) is str and is_plain(each) for key, each in value.items())
    return value is None or type(value) in (bool, int, float, str)


def outcome(source: str, *, inside: str) -> Any:
    """What comes of an expression, or the error that refuses it."""
    WATCH.seen.clear()
    WATCH.active = True
    try:
        if inside:
            return compile_template(inside.replace("…", source), NAMES).resolve(SCOPE)
        return compile_expression(source, NAMES).evaluate(SCOPE)
    except (ExpressionError, ExpressionSyntaxError, ExpressionSyntaxErrors) as error:
        return error
    finally:
        WATCH.active = False


def test_the_corpus_is_large_enough() -> None:
    assert len(set(EXPRESSIONS)) == len(EXPRESSIONS) >= 500


def test_the_watch_sees() -> None:
    WATCH.seen.clear()
    WATCH.active = True
    exec("1")
    WATCH.active = False
    assert WATCH.seen


# `…` stands for the expression.
@pytest.mark.parametrize("inside", ["", "text {{…}}", "…"])
def test_nothing_hostile_comes_through(inside: str) -> None:
    before = copy.deepcopy(SCOPE)
    for source in EXPRESSIONS:
        value = outcome(source, inside=inside)
        assert WATCH.seen == [], source
        if isinstance(value, Exception):
            assert len(str(value)) < 2000, source
        else:
            assert is_plain(value), source
            assert len(json.dumps(value, allow_nan=False)) <= 8 * MAX_BUILT_BYTES, source
    assert before == SCOPE


def test_every_way_to_an_attribute_of_python_is_refused_beforehand() -> None:
    for source in EXPRESSIONS:
        if "__" in source.replace('"', "'").split("'")[0]:
            with pytest.raises(ExpressionSyntaxError):
                compile_expression(source, NAMES)
