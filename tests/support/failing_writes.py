"""A SQLite file whose writes fail, as on a full disk, until a test allows them again."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

from rune.adapters.sqlite.database import Database, ExclusiveWrite
from rune.adapters.sqlite.journal import SqliteJournal
from rune.ports.journal import Journal


def database_of(journal: Journal) -> Database:
    """Return the file of an embedded journal."""
    return cast(SqliteJournal, journal)._database


def refusal(*, on: bool) -> ExclusiveWrite:
    """Return a write after which all others fail, or succeed again. Reads are not concerned."""

    def change(db: sqlite3.Connection) -> Any:
        db.execute(f"PRAGMA query_only = {'ON' if on else 'OFF'}")

    return ExclusiveWrite(change)


@asynccontextmanager
async def failing_writes(journal: Journal) -> AsyncIterator[None]:
    """Context in which every write to the file of an embedded journal fails."""
    database = database_of(journal)
    await database.submit(refusal(on=True))
    try:
        yield
    finally:
        await database.submit(refusal(on=False))
