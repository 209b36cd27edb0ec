"""Functions between values and their text forms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from rune.core.expr.budget import MAX_JSON_DEPTH, Run
from rune.core.expr.errors import BudgetError, ExpressionError
from rune.core.expr.functions.table import Table, text_of
from rune.core.expr.values import kind_of, to_json, to_text

JSONS = Table("JSON and types")


@JSONS.add("str(value)", "The value as text, as it looks inside text.", "str([1, null])", '"[1,null]"')
def str_(run: Run, value: Any, /) -> str:
    return _written(run, value, to_text)


@JSONS.add("json(value)", "The value as compact JSON.", 'json({"a": "b"})', '"{\\"a\\":\\"b\\"}"')
def json(run: Run, value: Any, /) -> str:
    return _written(run, value, to_json)


def _written(run: Run, value: Any, write: Callable[[Any], str]) -> str:
    # Weighed before it is written, because what shares its parts is longer than it looks, and afterwards
    # because escapes are longer than what they stand for.
    before = run.left
    run.weigh(value)
    text = write(value)
    run.build(max(0, len(text) - (before - run.left)))
    return text


@JSONS.add("parse_json(text)", "The value that a JSON text holds.", 'parse_json("[1, 2]")', "[1, 2]")
def parse_json(run: Run, text: Any, /) -> Any:
    run.build(len(text_of(text, "parse_json")))
    try:
        value = msgspec.json.decode(text.encode())
    except (msgspec.MsgspecError, ValueError) as error:
        raise ExpressionError(f"parse_json() cannot read the text: {error}") from None
    if _too_deep(value):
        raise BudgetError(f"the JSON is nested too deeply (limit: {MAX_JSON_DEPTH})")
    return value


def _too_deep(value: Any) -> bool:
    level = [value]
    for _ in range(MAX_JSON_DEPTH + 1):
        level = [each for each in level if type(each) is list or type(each) is dict]
        if not level:
            return False
        level = [child for each in level for child in (each if type(each) is list else each.values())]
    return True


@JSONS.add("type(value)", "One of null, boolean, number, string, array, object.", "type([1])", '"array"')
def type_(run: Run, value: Any, /) -> str:
    return kind_of(value)
