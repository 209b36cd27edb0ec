"""The names Rune exports are pinned: changing them is a decision, not a side effect."""

from __future__ import annotations

import ast
import difflib

from tests.lint.public_names import PINNED, exported, public_names


def test_the_public_names_are_the_pinned_ones() -> None:
    pinned = PINNED.read_text(encoding="utf-8").splitlines()

    diff = list(difflib.unified_diff(pinned, public_names(), "pinned", "exported", lineterm="", n=0))

    assert diff == [], "\n".join(
        [
            "The public names changed:",
            *diff,
            "If that is meant: python -m tests.lint.public_names, and say it in CHANGELOG.md",
        ]
    )


def test_names_are_read_from_both_spellings() -> None:
    assert exported(ast.parse("__all__ = ['a', 'b']")) == ["a", "b"]
    assert exported(ast.parse("__all__: list[str] = ['a']")) == ["a"]
    assert exported(ast.parse("x = 1")) == []
