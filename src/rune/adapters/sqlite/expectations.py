"""Workflows of which an execution has to complete in time, in SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from rune.adapters.rows import completion_of, encode_missing
from rune.adapters.sqlite.database import Database
from rune.ports.journal import Missing
from rune.ports.workflows import Expectation, moved_on

PAGE_SIZE = 50
_SELECT = "SELECT body FROM expectation"
_COMPLETED = (
    "SELECT ended_at, n, accepted FROM execution INDEXED BY execution_ended"
    " WHERE workflow = ? AND ended_at IS NOT NULL AND ended_at > ? AND status = 'completed'"
    " AND (ended_at, n) < (?, ?) ORDER BY ended_at DESC, n DESC LIMIT ?"
)
_END = 2**62

_DECODER = msgspec.msgpack.Decoder(Expectation)
_ENCODER = msgspec.msgpack.Encoder()


class SqliteExpectations:
    """Implements the expectation store. A single thread writes, so revisions are compared and replaced atomically."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def list(self) -> Sequence[Expectation]:
        return _read(self._database.reader, f"{_SELECT} ORDER BY workflow")

    async def find(self, workflow: str) -> Expectation | None:
        return _find(self._database.reader, workflow)

    async def put(self, expectation: Expectation, missing: Missing | None = None) -> Expectation | None:
        stored: Expectation | None = await self._database.submit(lambda db: _put(db, expectation, missing))
        return stored

    async def remove(self, expectation: Expectation) -> bool:
        values = expectation.workflow, expectation.revision
        count: int = await self._database.submit(
            lambda db: (
                db.execute("DELETE FROM expectation WHERE workflow = ? AND revision = ?", values).rowcount
            )
        )
        return count == 1

    async def due(self, now: int, limit: int) -> Sequence[Expectation]:
        return _read(self._database.reader, f"{_SELECT} WHERE due <= ? ORDER BY due LIMIT ?", now, limit)

    async def last_completed(self, workflow: str, after: int) -> int | None:
        return _last_completed(self._database.reader, workflow, after)


def insert_missing(db: sqlite3.Connection, missing: Missing | None) -> None:
    """Insert the row of a handler of what is missing, if something is."""
    if missing is not None:
        db.execute(
            "INSERT OR IGNORE INTO hook (execution, kind, at, until, body) VALUES (?, 'missing', ?, 0, ?)",
            (missing.name, missing.at, encode_missing(missing)),
        )


def note_completions(db: sqlite3.Connection, executions: Sequence[int]) -> None:
    """Move the expectations of these executions, which are about to be removed, on to the last completion."""
    marks = ", ".join("?" * len(executions))
    affected = f"{_SELECT} WHERE workflow IN (SELECT workflow FROM execution WHERE n IN ({marks}))"
    for each in _read(db, affected, *executions):
        last = _last_completed(db, each.workflow, each.since)
        if last is not None:
            _put(db, moved_on(each, last))


def _read(db: sqlite3.Connection, statement: str, *values: Any) -> Sequence[Expectation]:
    return [_DECODER.decode(row[0]) for row in db.execute(statement, values)]


def _find(db: sqlite3.Connection, workflow: str) -> Expectation | None:
    return next(iter(_read(db, f"{_SELECT} WHERE workflow = ?", workflow)), None)


def _put(
    db: sqlite3.Connection, expectation: Expectation, missing: Missing | None = None
) -> Expectation | None:
    known = _find(db, expectation.workflow)
    if (0 if known is None else known.revision) != expectation.revision:
        return None
    stored = replace(expectation, revision=expectation.revision + 1)
    db.execute(
        "INSERT OR REPLACE INTO expectation (workflow, due, revision, body) VALUES (?, ?, ?, ?)",
        (stored.workflow, stored.due, stored.revision, _ENCODER.encode(stored)),
    )
    insert_missing(db, missing)
    return stored


def _last_completed(db: sqlite3.Connection, workflow: str, after: int) -> int | None:
    before = (_END, _END)
    while rows := db.execute(_COMPLETED, (workflow, after, *before, PAGE_SIZE)).fetchall():
        found = completion_of(rows)
        if found is not None:
            return found
        before = rows[-1][:2]
    return None
