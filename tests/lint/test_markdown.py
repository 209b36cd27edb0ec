"""Pages that are written by hand are CommonMark with tables and alerts, which a code forge shows as the site does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.lint.tree import ROOT, files, name
from tests.support.each import for_each

PAGES = [path for path in files(ROOT, ".md") if "tests" not in path.relative_to(ROOT).parts]
CODE = re.compile(r"^(```|~~~).*?^\1\s*$|(`+)(?:(?!\n\n).)*?\2", re.MULTILINE | re.DOTALL)
OTHER = {
    "an element of HTML": re.compile(r"</?[A-Za-z][^>\n]*>"),
    "an admonition of a generator": re.compile(r"^(?:!!!|\?\?\?) ", re.MULTILINE),
    "tabs": re.compile(r"^=== \"", re.MULTILINE),
    "attributes": re.compile(r"\{[:#.][^}\n]*\}"),
    "a footnote": re.compile(r"\[\^[^\]]+\]"),
    "a directive": re.compile(r"^:::", re.MULTILINE),
    "a wiki link": re.compile(r"\[\[[^\]]+\]\]"),
    "a template": re.compile(r"\{%|\{\{|--8<--"),
}


def found_in(text: str) -> list[str]:
    """Return what of a text is not CommonMark with tables."""
    plain = CODE.sub("code", text)
    return [f"{kind}: {match[0]}" for kind, pattern in OTHER.items() for match in pattern.finditer(plain)]


@for_each("page", PAGES, ids=name)
def test_page_has_no_syntax_of_a_generator(page: Path) -> None:
    assert found_in(page.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("> [!NOTE]\n> A note.\n", 0),
        ("| a | b |\n|---|---|\n| `<b>` | {x} |\n", 0),
        ("<!-- needs: up -->\n", 0),
        ("A <b>bold</b> word.\n", 2),
        ("!!! note\n\n    A note.\n", 1),
        ("A picture{: .wide}\n", 1),
    ],
)
def test_syntax_of_a_generator_is_found(text: str, count: int) -> None:
    assert len(found_in(text)) == count
