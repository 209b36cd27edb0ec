"""Query plans of the SQLite adapter: pages are read along an index."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from rune.adapters.sqlite.journal import FACTS_BEHIND, OF_TOKEN
from rune.adapters.sqlite.schema import MIGRATIONS, migrate
from rune.adapters.sqlite.stores import list_statement


@pytest.fixture
def db(tmp_path: Path) -> sqlite3.Connection:
    db = sqlite3.connect(tmp_path / "rune.db", isolation_level=None)
    migrate(db)
    return db


def plan_of(db: sqlite3.Connection, statement: str) -> list[str]:
    """Return the plan steps that touch a table or sort."""
    named = {"status": "failed", "workflow": "w", "before": 9, "limit": 50}
    values = named if ":limit" in statement else [1] * statement.count("?")
    rows = db.execute(f"EXPLAIN QUERY PLAN {statement}", values).fetchall()
    return [row[3] for row in rows if "execution" in row[3] or "fact" in row[3] or "ORDER BY" in row[3]]


@pytest.mark.parametrize(
    ("statuses", "by_workflow", "index"),
    [
        ((), False, "INTEGER PRIMARY KEY (rowid<?)"),
        (("halted",), False, "INDEX execution_status (status=? AND rowid<?)"),
        (("failed", "halted"), False, "COVERING INDEX execution_status (status=? AND rowid<?)"),
        (("halted",), True, "INDEX execution_workflow (workflow=? AND status=? AND rowid<?)"),
        ((), True, "COVERING INDEX execution_workflow (workflow=? AND status=? AND rowid<?)"),
    ],
)
def test_page_of_executions_uses_index_range(
    db: sqlite3.Connection, statuses: tuple[str, ...], by_workflow: bool, index: str
) -> None:
    steps = plan_of(db, list_statement(statuses, by_workflow=by_workflow))
    assert any(each.endswith(index) for each in steps)
    assert all(each.startswith("SEARCH execution USING") for each in steps), steps


def test_page_of_facts_uses_index_range(db: sqlite3.Connection) -> None:
    assert plan_of(db, FACTS_BEHIND) == ["SEARCH fact USING INDEX fact_order (execution=? AND seq>?)"]


def test_facts_of_token_use_primary_key(db: sqlite3.Connection) -> None:
    steps = plan_of(db, OF_TOKEN)
    assert steps[0] == "SEARCH fact USING PRIMARY KEY (execution=? AND kind=? AND node=? AND path=?)"


def test_migration_from_first_version_adds_indexes_and_keeps_rows(tmp_path: Path) -> None:
    db = sqlite3.connect(tmp_path / "rune.db", isolation_level=None)
    db.executescript(f"BEGIN; {MIGRATIONS[0]()} PRAGMA user_version = 1; COMMIT;")
    db.execute(
        "INSERT INTO execution (n, id, workflow, hash, at, accepted) VALUES (7, 'x', 'w', 'h', 1, x'')"
    )
    migrate(db)
    assert db.execute("PRAGMA user_version").fetchone() == (len(MIGRATIONS),)
    assert db.execute("SELECT n FROM execution WHERE workflow = 'w' AND status = 'running'").fetchall() == [
        (7,)
    ]
