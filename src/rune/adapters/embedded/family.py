"""Children and parents: who waits for whose end, and who has to be told."""

from __future__ import annotations

import sqlite3


def children(db: sqlite3.Connection, parent: str) -> list[str]:
    """The children of an execution that have not ended."""
    rows = db.execute(
        "SELECT id FROM execution WHERE parent = ? AND told = 0 AND ended_at IS NULL ORDER BY n", (parent,)
    )
    return [row[0] for row in rows]


def untold(db: sqlite3.Connection, limit: int) -> list[str]:
    """Children that have ended without their parent knowing, and those whose parent has ended without them."""
    rows = db.execute(
        "SELECT child.id FROM execution child LEFT JOIN execution parent ON parent.id = child.parent"
        " WHERE child.parent IS NOT NULL AND child.told = 0"
        " AND (child.ended_at IS NOT NULL OR parent.id IS NULL OR parent.ended_at IS NOT NULL) LIMIT ?",
        (limit,),
    )
    return [row[0] for row in rows]
