"""Fences of the pages are what their language says: documents are valid, data and programs can be parsed."""

from __future__ import annotations

import ast
import json
import re
import textwrap
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from ruamel.yaml import YAML

from rune.testing.expectations import assert_valid
from tests.lint.tree import ROOT, files, name
from tests.support.each import for_each

FENCE = re.compile(r"^```(\w+)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Fence(NamedTuple):
    """A fence, its page and its number on the page."""

    page: Path
    number: int
    language: str
    body: str

    def __str__(self) -> str:
        return f"{name(self.page)}:{self.number}:{self.language}"


FENCES = [
    Fence(page, number, language, body)
    for page in files(ROOT, ".md")
    for number, (language, body) in enumerate(FENCE.findall(page.read_text(encoding="utf-8")), 1)
]
PARSERS: dict[str, Callable[[str], Any]] = {
    "yaml": YAML(typ="safe").load,
    "json": json.loads,
    "toml": tomllib.loads,
    "python": lambda body: ast.parse(textwrap.dedent(body)),
}


@for_each("fence", [each for each in FENCES if each.language in PARSERS], ids=str)
def test_fence_can_be_parsed(fence: Fence) -> None:
    PARSERS[fence.language](fence.body)


def _is_document(fence: Fence) -> bool:
    """Whether a fence is a whole workflow without custom node types, which only their module defines."""
    if fence.language not in ("yaml", "json"):
        return False
    found = PARSERS[fence.language](fence.body)
    if not isinstance(found, dict) or not {"id", "nodes"} <= found.keys():
        return False
    return not any("." in str(each.get("type", "")) for each in found["nodes"])


@for_each("fence", [each for each in FENCES if _is_document(each)], ids=str)
def test_workflow_is_valid(fence: Fence) -> None:
    assert_valid(PARSERS[fence.language](fence.body))


def test_documents_are_found() -> None:
    assert sum(_is_document(each) for each in FENCES) >= 20
