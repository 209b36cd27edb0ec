"""Hostile expressions are rejected or give plain JSON within the budget, without side effects."""

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
from tests.unit.core.expr.evaluation import is_plain
from tests.unit.core.expr.hostile_corpus import hostile_expressions

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
# Audit events of running or importing code and of opening files, sockets or processes.
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


class AuditRecorder:
    """Records forbidden audit events while an expression is compiled and evaluated."""

    def __init__(self) -> None:
        self.active = False
        self.events: list[str] = []
        sys.addaudithook(self._hook)

    def _hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.active and event.startswith(FORBIDDEN):
            self.events.append(f"{event} {arguments!r}")


AUDIT = AuditRecorder()


def outcome(source: str, *, inside: str) -> Any:
    """The value of an expression, or the error that rejects it."""
    AUDIT.events.clear()
    AUDIT.active = True
    try:
        if inside:
            return compile_template(inside.replace("…", source), NAMES).resolve(SCOPE)
        return compile_expression(source, NAMES).evaluate(SCOPE)
    except (ExpressionError, ExpressionSyntaxError, ExpressionSyntaxErrors) as error:
        return error
    finally:
        AUDIT.active = False


def test_corpus_has_at_least_500_distinct_expressions() -> None:
    assert len(set(EXPRESSIONS)) == len(EXPRESSIONS) >= 500


def test_audit_hook_records_exec() -> None:
    AUDIT.events.clear()
    AUDIT.active = True
    exec("1")
    AUDIT.active = False
    assert AUDIT.events


# `…` stands for the expression.
@pytest.mark.parametrize("inside", ["", "text {{…}}", "…"])
def test_hostile_expressions_are_rejected_or_give_plain_json(inside: str) -> None:
    before = copy.deepcopy(SCOPE)
    for source in EXPRESSIONS:
        value = outcome(source, inside=inside)
        assert AUDIT.events == [], source
        if isinstance(value, Exception):
            assert len(str(value)) < 2000, source
        else:
            assert is_plain(value), source
            assert len(json.dumps(value, allow_nan=False)) <= 8 * MAX_BUILT_BYTES, source
    assert before == SCOPE


def test_dunder_access_is_rejected_at_compile_time() -> None:
    for source in EXPRESSIONS:
        if "__" in source.replace('"', "'").split("'")[0]:
            with pytest.raises(ExpressionSyntaxError):
                compile_expression(source, NAMES)
