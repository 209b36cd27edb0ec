"""Limits on starts in the same file. They are judged in the one writing thread, so nobody comes between."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

import msgspec

from rune.adapters.embedded.database import Database
from rune.adapters.embedded.tables import asked
from rune.ports.journal import Accepted
from rune.ports.limits import FULL, RATE, RUNNING, Bucket, Held, Limits, TooMany, too_many

_LIMITS = msgspec.json.Decoder(Limits)
_RUNNING = (
    "SELECT count(*) FROM"
    " (SELECT 1 FROM execution WHERE workflow = ? AND status IN ('running', 'paused') LIMIT ?)"
)
_ENDED = (
    "DELETE FROM limited_start WHERE subject = ? AND NOT EXISTS"
    " (SELECT 1 FROM execution WHERE id = limited_start.execution AND end IS NULL)"
)


class EmbeddedLimits:
    """Limits by whom they are for."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def put(self, subject: str, limits: Limits, at: int) -> None:
        await self._database.submit(lambda db: _put(db, subject, limits, at))

    async def all(self) -> dict[str, Limits]:
        rows = asked(self._database, "SELECT subject, limits FROM start_limit ORDER BY subject")
        return {subject: _LIMITS.decode(text) for subject, text in rows}


class _Row(msgspec.Struct, frozen=True):
    subject: str
    limits: Limits
    level: int
    filled_at: int

    @property
    def bucket(self) -> Bucket | None:
        return self.limits.bucket


def held_back(db: sqlite3.Connection, execution: Accepted, held: Held) -> TooMany | None:
    """Why a start that is new is refused; counted as one where it is not."""
    if held.full:
        return too_many(FULL, "", full=held.full)
    rows = _rows(db, held.subjects)
    for row in rows:
        refused = _over(db, row, execution.at)
        if refused is not None:
            return refused
    for row in rows:
        _count(db, row, execution)
    return None


def _put(db: sqlite3.Connection, subject: str, limits: Limits, at: int) -> None:
    if not limits:
        db.execute("DELETE FROM start_limit WHERE subject = ?", (subject,))
        return
    known = _rows(db, (subject,))
    bucket = limits.bucket
    level = bucket.full if bucket is not None else 0
    if known and known[0].bucket == bucket:
        level, at = known[0].level, known[0].filled_at
    text = msgspec.json.encode(limits).decode()
    db.execute("INSERT OR REPLACE INTO start_limit VALUES (?, ?, ?, ?)", (subject, text, level, at))


def _rows(db: sqlite3.Connection, subjects: Sequence[str]) -> list[_Row]:
    found = []
    for each in subjects:
        row = db.execute("SELECT * FROM start_limit WHERE subject = ?", (each,)).fetchone()
        if row is not None:
            found.append(_Row(row[0], _LIMITS.decode(row[1]), row[2], row[3]))
    return found


def _over(db: sqlite3.Connection, row: _Row, now: int) -> TooMany | None:
    most, bucket = row.limits.running, row.bucket
    if most is not None and _running(db, row.subject, most) >= most:
        return too_many(RUNNING, row.subject)
    if bucket is not None:
        pause = bucket.pause(bucket.level(row.level, now - row.filled_at))
        if pause:
            return too_many(RATE, row.subject, pause)
    return None


def _running(db: sqlite3.Connection, subject: str, most: int) -> int:
    kind, _, name = subject.partition(":")
    if kind == "workflow":
        (count,) = db.execute(_RUNNING, (name, most)).fetchone()
    else:
        db.execute(_ENDED, (subject,))
        (count,) = db.execute("SELECT count(*) FROM limited_start WHERE subject = ?", (subject,)).fetchone()
    return int(count)


def _count(db: sqlite3.Connection, row: _Row, execution: Accepted) -> None:
    bucket = row.bucket
    if bucket is not None:
        left = bucket.level(row.level, execution.at - row.filled_at) - bucket.period
        db.execute(
            "UPDATE start_limit SET level = ?, filled_at = ? WHERE subject = ?",
            (left, max(row.filled_at, execution.at), row.subject),
        )
    if row.limits.running is not None and row.subject.startswith("key:"):
        db.execute("INSERT INTO limited_start VALUES (?, ?)", (row.subject, execution.id))
