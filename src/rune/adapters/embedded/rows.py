"""Rows of facts, written together: as many as there are in a group, in as few statements as will do.

SQLite lets go of Python's lock once per statement. Few wide statements keep the loop and the writer out of each
other's way.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from itertools import chain
from typing import Any

import msgspec

from rune.adapters.rowforms import LETTERS
from rune.core.fact import End

Row = tuple[int, int, int, bytes, int, int, int, bytes]
"""Execution, kind, node, path, number, seq, late, body."""

_WIDTHS = (64, 16, 4, 1)
_FACTS = "INSERT INTO fact (execution, kind, node, path, number, seq, late, body) VALUES "
_CLAIMS = "INSERT OR IGNORE INTO claim (execution, node, path, fence, at) VALUES "
_PACK = msgspec.msgpack.Encoder()


def _statements(head: str, columns: int) -> dict[int, str]:
    row = "(" + ", ".join("?" * columns) + ")"
    return {width: head + ", ".join([row] * width) for width in _WIDTHS}


_FACT_STATEMENTS = _statements(_FACTS, 8)
_CLAIM_STATEMENTS = _statements(_CLAIMS, 5)


_START_STATEMENTS = _statements(
    "INSERT INTO execution (n, id, workflow, hash, at, wake_at, accepted) VALUES ", 7
)
_WAKE_STATEMENTS = {
    width: f"WITH sleeper (n, wake_at) AS (VALUES {', '.join(['(?, ?)'] * width)}) "
    "UPDATE execution SET wake_at = sleeper.wake_at FROM sleeper "
    "WHERE execution.n = sleeper.n AND execution.wake_at IS NOT NULL"
    for width in _WIDTHS
}
_END_STATEMENTS = {
    width: f"WITH ended (n, status, at, end) AS (VALUES {', '.join(['(?, ?, ?, ?)'] * width)}) "
    "UPDATE execution SET status = ended.status, ended_at = ended.at, end = ended.end, wake_at = NULL FROM ended "
    "WHERE execution.n = ended.n"
    for width in _WIDTHS
}


class Rows:
    """Facts of one execution, claims made meanwhile, and the terminal fact if it is among them. `status` is what lists
    show from now on."""

    __slots__ = ("claims", "end", "execution", "facts", "status", "wake_at")

    def __init__(
        self,
        execution: str,
        facts: list[Row],
        claims: list[tuple[Any, ...]],
        end: End | None,
        wake_at: int | None = None,
        status: str | None = None,
    ) -> None:
        self.execution = execution
        self.facts = facts
        self.claims = claims
        self.end = end
        self.wake_at = wake_at
        self.status = status

    def __call__(self, db: sqlite3.Connection) -> None:
        write_rows(db, [self])


class Start:
    """One accepted execution."""

    __slots__ = ("row",)

    def __init__(self, row: tuple[Any, ...]) -> None:
        self.row = row

    def __call__(self, db: sqlite3.Connection) -> None:
        _insert(db, _START_STATEMENTS, [self.row])


def write_starts(db: sqlite3.Connection, group: Sequence[Start]) -> None:
    """Insert accepted executions."""
    _insert(db, _START_STATEMENTS, [each.row for each in group])


def insert_facts(db: sqlite3.Connection, rows: Sequence[Row]) -> None:
    """Insert facts that an execution begins with."""
    _insert(db, _FACT_STATEMENTS, rows)


def write_rows(db: sqlite3.Connection, group: Sequence[Rows]) -> None:
    """Insert everything of a group; a fact that is there already fails all of it."""
    _insert(db, _FACT_STATEMENTS, [row for each in group for row in each.facts])
    _insert(db, _CLAIM_STATEMENTS, [row for each in group for row in each.claims])
    _insert(
        db, _WAKE_STATEMENTS, [(each.facts[0][0], each.wake_at) for each in group if each.wake_at is not None]
    )
    for each in group:
        if each.status is not None:
            db.execute("UPDATE execution SET status = ? WHERE n = ?", (each.status, each.facts[0][0]))
    ends = [
        (each.facts[0][0], each.end.status, each.end.at, _PACK.encode(each.end))
        for each in group
        if each.end is not None
    ]
    if ends:
        _insert(db, _END_STATEMENTS, ends)
        _write_letters(db, group)


def _write_letters(db: sqlite3.Connection, group: Sequence[Rows]) -> None:
    for each in group:
        error = each.end.error if each.end is not None else None
        if each.end is not None and error is not None and error.code in LETTERS:
            db.execute(
                "INSERT OR IGNORE INTO dead_letter (execution, code, at) VALUES (?, ?, ?)",
                (each.execution, error.code, each.end.at),
            )


def _insert(db: sqlite3.Connection, statements: dict[int, str], rows: Sequence[tuple[Any, ...]]) -> None:
    start = 0
    for width, statement in statements.items():
        while len(rows) - start >= width:
            db.execute(statement, tuple(chain.from_iterable(rows[start : start + width])))
            start += width
