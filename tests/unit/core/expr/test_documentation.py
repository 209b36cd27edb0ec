"""The page about expressions is true."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from rune.core.expr import Names, budget, compile_expression, compile_template
from rune.core.expr.functions.dates import _SHORTHANDS, _WRITERS
from tests.unit.core.expr.doctable import PAGE, with_table
from tests.unit.core.expr.helper import same

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


def test_the_table_of_functions_is_that_of_the_code() -> None:
    assert with_table(TEXT) == TEXT, "python -m tests.unit.core.expr.doctable writes it anew"


@pytest.mark.parametrize(("source", "wanted"), EXPRESSIONS)
def test_expression(source: str, wanted: str) -> None:
    assert same(compile_expression(source, NAMES).evaluate(SCOPE), json.loads(wanted))


@pytest.mark.parametrize(("text", "wanted"), PARAMETERS)
def test_parameter(text: str, wanted: str) -> None:
    assert same(compile_template(text, NAMES).resolve(SCOPE), json.loads(wanted))


def test_the_examples_are_read() -> None:
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
    ],
)
def test_limits(limit: int) -> None:
    assert re.search(rf"\b{limit:,}\b", TEXT.partition("## Limits")[2])


def test_every_directive_is_listed() -> None:
    listed = re.search(r"directives of patterns are `(.*?)`", TEXT.replace("\n", " "))
    assert listed is not None
    assert set(listed[1].split()) == {f"%{each}" for each in (*_WRITERS, *_SHORTHANDS)}
