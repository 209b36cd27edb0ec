"""The exported names of Rune are pinned in `public_names.txt`."""

from __future__ import annotations

import ast
import difflib

from tests.lint.public_names import PINNED, exported, public_names


def test_exported_names_equal_pinned_names() -> None:
    pinned = PINNED.read_text(encoding="utf-8").splitlines()

    diff = list(difflib.unified_diff(pinned, public_names(), "pinned", "exported", lineterm="", n=0))

    assert diff == [], "\n".join(
        [
            "The public names changed:",
            *diff,
            "If this is intended, run python -m tests.lint.public_names and update CHANGELOG.md",
        ]
    )


def test_exported_reads_plain_and_annotated_all() -> None:
    assert exported(ast.parse("__all__ = ['a', 'b']")) == ["a", "b"]
    assert exported(ast.parse("__all__: list[str] = ['a']")) == ["a"]
    assert exported(ast.parse("x = 1")) == []
