"""The web interface reads and writes JSON in one place, which keeps the digits of numbers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.lint.tree import ROOT, files

SOURCES = ROOT / "ui" / "src"
ONLY = SOURCES / "text" / "json.ts"
RAW = re.compile(
    r"\bJSON\s*(?:\?\.|\.|\[)\s*['\"`]?\w+"  # the reader and the writer of the browser, and what hides them
    r"|=\s*JSON\b|\.json\s*\(|\bparseAs:\s*['\"]json|\bstructuredClone\b"
)
TYPED = re.compile(r"\b(?:Number|Number\.parseFloat|Number\.parseInt|parseFloat|parseInt)\(\s*event\.")
# Choices among numbers that the page itself wrote: a version, a share in percent, a number of days, an index.
CHOICES = {"workflow.tsx": 2, "keys.tsx": 1, "form.tsx": 1, "execution.tsx": 1}


def sources() -> list[Path]:
    return [path for path in files(SOURCES, ".ts", ".tsx") if path != ONLY and path.name != "schema.d.ts"]


def uses(pattern: re.Pattern[str], text: str) -> list[str]:
    lines = [line for line in text.splitlines() if not line.strip().startswith(("//", "*", "/*"))]
    return [match.group() for line in lines for match in pattern.finditer(line)]


def test_sources_read_and_write_json_by_the_reader_that_keeps_digits() -> None:
    assert len(sources()) > 100

    assert {path.name: found for path in sources() if (found := uses(RAW, path.read_text("utf-8")))} == {}


def test_numbers_that_a_person_types_are_read_by_their_digits() -> None:
    found = {path.name: len(uses(TYPED, path.read_text("utf-8"))) for path in sources()}

    assert {name: count for name, count in found.items() if count} == CHOICES, (
        "use typedNumber of text/json.ts"
    )


@pytest.mark.parametrize(
    "line",
    [
        "const value = JSON.parse(text) as unknown;",
        "copy(JSON.stringify(value, null, 2))",
        "const { parse } = JSON;",
        'JSON["parse"](text)',
        "await response.json()",
        "(await get(path)).json<T>()",
        'api.GET(path, { parseAs: "json" })',
        "const copy = structuredClone(value);",
    ],
)
def test_rule_recognises_other_readers(line: str) -> None:
    assert uses(RAW, line.replace("<T>", ""))


def test_rule_leaves_words_alone() -> None:
    assert (
        uses(RAW, 'import DEFAULTS from "./retry.json"; const hint = "Text, or a JSON value."; toJson(value)')
        == []
    )
