"""The SQL files of the PostgreSQL adapter: every query is loadable, documented and used."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rune.adapters.postgres.database import queries, query
from tests.support.paths import SOURCE

FOLDER = SOURCE / "rune" / "adapters" / "postgres"
CALLERS = [*FOLDER.glob("*.py"), *(SOURCE / "rune" / "bootstrap").glob("*.py")]
CALL = re.compile(r'\bquery\(\s*"(\w+)"')
LITERAL = re.compile(r'"(\w+)"')


def test_every_called_query_exists() -> None:
    called = {name for file in CALLERS for name in CALL.findall(file.read_text(encoding="utf-8"))}
    assert called - {*queries()} == set()


def test_every_query_is_used() -> None:
    named = {name for file in CALLERS for name in LITERAL.findall(file.read_text(encoding="utf-8"))}
    assert {*queries()} - named == set()


@pytest.mark.parametrize("file", sorted(FOLDER.glob("queries/*.sql")), ids=lambda file: file.stem)
def test_every_query_has_a_comment_and_one_statement(file: Path) -> None:
    _, *sections = f"\n{file.read_text(encoding='utf-8')}".split("\n-- name: ")
    assert sections
    for section in sections:
        name, comment, *_ = section.splitlines()
        assert re.fullmatch(r"[a-z_]+", name)
        assert comment.startswith("-- "), name
        assert query(name), name
        assert ";" not in query(name), name
