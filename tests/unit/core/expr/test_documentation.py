"""The examples, limits and tables of docs/expressions.md match the code."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from rune.core.expr import Names, budget, compile_expression, compile_template
from rune.core.expr.functions.dates import _SHORTHANDS, _WRITERS
from tests.unit.core.expr.evaluation import same
from tests.unit.core.expr.function_table import PAGE, with_table

TEXT = PAGE.read_text(encoding="utf-8")
NAMES = Names(frozenset({"fetch", "my-node"}), {"Fetch rows": "fetch"})
SCOPE: dict[str, Any] = json.loads(re.search(r"```json\n(.*?)```", TEXT, re.DOTALL)[1])  # type: ignore[index]


def rows(heading: str) -> list[tuple[str, str]]:
    """The rows of every table with this heading."""
    tables = re.findall(rf"^\| {heading} \|\n\|---\|---\|\n((?:\|.*\n)+)", TEXT, re.MULTILINE)
    cells = [re.fullmatch(r"\| `(.*)` \| `(.*)` \|", line) for table in tables for line in table.splitlines()]
    return [(each[1].replace("\\|", "|"), each[2]) for each in cells if each]


EXPRESSIONS = rows("expression \\| gives")
PARAMETERS = rows("parameter \\| becomes")


def test_function_table_matches_code() -> None:
    assert with_table(TEXT) == TEXT, "python -m tests.unit.core.expr.function_table updates it"


@pytest.mark.parametrize(("source", "expected"), EXPRESSIONS)
def test_documented_expression_gives_documented_value(source: str, expected: str) -> None:
    assert same(compile_expression(source, NAMES).evaluate(SCOPE), json.loads(expected))


@pytest.mark.parametrize(("text", "expected"), PARAMETERS)
def test_documented_parameter_gives_documented_value(text: str, expected: str) -> None:
    assert same(compile_template(text, NAMES).resolve(SCOPE), json.loads(expected))


def test_examples_are_found_in_page() -> None:
    assert len(EXPRESSIONS) == 25
    assert len(PARAMETERS) == 8


@pytest.mark.parametrize(
    "limit",
    [
        budget.MAX_SOURCE_BYTES,
        budget.MAX_NODES,
        budget.MAX_NESTING,
        budget.MAX_STEPS,
        budget.STEPS_PER_ELEMENT,
        budget.MAX_GRANTED_ELEMENTS,
        budget.MAX_BUILT_BYTES,
        budget.SLOT_BYTES,
        budget.MAX_INT_BITS,
        budget.MAX_PATTERN_CHARS,
        budget.MAX_PATTERN_REPEATS,
        budget.MAX_PATTERN_SIZE,
    ],
)
def test_limit_is_documented(limit: int) -> None:
    assert re.search(rf"\b{limit:,}\b", TEXT.partition("## Limits")[2])


def test_all_date_directives_are_documented() -> None:
    listed = re.search(r"directives of patterns are `(.*?)`", TEXT.replace("\n", " "))
    assert listed is not None
    assert set(listed[1].split()) == {f"%{each}" for each in (*_WRITERS, *_SHORTHANDS)}
