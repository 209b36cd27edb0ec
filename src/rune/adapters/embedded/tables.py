"""Tables that a file of an earlier program does not have yet: whoever only reads it finds nothing there."""

from __future__ import annotations

import sqlite3
from typing import Any

from rune.adapters.embedded.database import Database
from rune.ports.journal import StoreAway


def asked(database: Database, statement: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The rows of a question."""
    try:
        return database.reader.execute(statement, values).fetchall()
    except sqlite3.Error as error:
        if str(error).startswith("no such table"):
            return []
        raise StoreAway(f"cannot read {database.path}: {error}") from None
