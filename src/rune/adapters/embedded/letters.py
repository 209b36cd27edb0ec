"""Dead letters: executions that ended because the engine could do no more."""

from __future__ import annotations

import sqlite3

from rune.adapters.rowforms import letter_of
from rune.ports.journal import DeadLetter


def unsettled(db: sqlite3.Connection, limit: int, after: str | None) -> list[DeadLetter]:
    """Newest first, behind a given id."""
    rows = db.execute(
        "SELECT letter.execution, letter.code, letter.at, execution.workflow, execution.end"
        " FROM dead_letter letter JOIN execution ON execution.id = letter.execution"
        " WHERE letter.settled IS NULL AND (?1 IS NULL OR (letter.at, letter.execution) <"
        " (SELECT at, execution FROM dead_letter WHERE execution = ?1))"
        " ORDER BY letter.at DESC, letter.execution DESC LIMIT ?2",
        (after, limit),
    )
    return [letter_of(*row) for row in rows]


def settle(db: sqlite3.Connection, letter: str, how: str) -> bool:
    """Note what became of a letter; False if there is none that is open."""
    changed = db.execute(
        "UPDATE dead_letter SET settled = ? WHERE execution = ? AND settled IS NULL", (how, letter)
    )
    return changed.rowcount > 0
