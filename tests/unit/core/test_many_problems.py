"""A document with any number of unknown fields is refused with a bounded number of problems and hints."""

from __future__ import annotations

import difflib
import json

import pytest

from rune.core.definition.fields import MAX_UNKNOWN
from rune.core.definition.parser import parse_document
from rune.core.definition.problems import MAX_COMPARED, UNKNOWN_FIELD, did_you_mean


def test_unknown_fields_beyond_a_number_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[str] = []

    def matches(word: str, *_: object, **__: object) -> list[str]:
        compared.append(word)
        return []

    monkeypatch.setattr(difflib, "get_close_matches", matches)
    document = {"id": "w", "nodes": [], **{f"k{at}": 0 for at in range(5_000)}}

    found = parse_document(json.dumps(document).encode()).problems

    unknown = [each for each in found if each.code == UNKNOWN_FIELD]
    assert len(unknown) == MAX_UNKNOWN + 1
    assert unknown[-1].message == "4,900 more unknown fields; 100 are listed"
    assert len(compared) == MAX_UNKNOWN


def test_long_word_is_no_misspelling() -> None:
    assert did_you_mean("n" * MAX_COMPARED, ["n" * (MAX_COMPARED - 1)]).startswith("did you mean")
    assert did_you_mean("n" * (MAX_COMPARED + 1), ["n" * MAX_COMPARED]).startswith("known: ")
