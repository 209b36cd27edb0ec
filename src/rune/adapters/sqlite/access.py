"""Keys of the API in the same file.

The log in the same file.

Limits on starts in the same file. They are judged in the one writing thread, so nobody comes between.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

import msgspec

from rune.adapters.rows import entry_of, entry_row, key_of, key_row
from rune.adapters.sqlite.database import Database
from rune.adapters.sqlite.database import read as asked
from rune.ports.access import (
    ALL_ENTRIES,
    FULL,
    RATE,
    RUNNING,
    ApiKey,
    AppliedLimits,
    AuditEntry,
    AuditFilter,
    Bucket,
    Limits,
    StartLimitError,
    key_not_found,
    start_limit_error,
)
from rune.ports.journal import ExecutionRecord

_KEY_COLUMNS = "id, name, role, scopes, digest, created_at, created_by, expires_at, revoked_at, used_at"


class SqliteApiKeys:
    """Keys by id."""

    def __init__(self, database: Database) -> None:
        self._database = database
        # Whoever owns the file is the only one who makes keys, so it need not look each time.
        self._owned = database.opened > 0
        self._exist: bool | None = None

    async def put(self, key: ApiKey) -> ApiKey:
        def work(db: sqlite3.Connection) -> ApiKey:
            marks = ", ".join("?" * 10)
            db.execute(f"INSERT OR IGNORE INTO api_key ({_KEY_COLUMNS}) VALUES ({marks})", key_row(key))
            return _found(db, key.id)

        made = await self._write(work)
        self._exist = True
        return made

    async def find(self, id: str) -> ApiKey | None:
        rows = asked(self._database, f"SELECT {_KEY_COLUMNS} FROM api_key WHERE id = ?", (id,))
        return key_of(rows[0]) if rows else None

    async def list(self) -> list[ApiKey]:
        return [
            key_of(row)
            for row in asked(self._database, f"SELECT {_KEY_COLUMNS} FROM api_key ORDER BY created_at, id")
        ]

    async def revoke(self, id: str, at: int) -> ApiKey:
        def work(db: sqlite3.Connection) -> ApiKey:
            db.execute("UPDATE api_key SET revoked_at = ? WHERE id = ? AND revoked_at IS NULL", (at, id))
            return _found(db, id)

        return await self._write(work)

    async def mark_used(self, id: str, at: int) -> None:
        await self._database.submit(
            lambda db: db.execute("UPDATE api_key SET used_at = ? WHERE id = ?", (at, id)).rowcount
        )

    async def exist(self) -> bool:
        if self._exist is None or not self._owned:
            self._exist = bool(asked(self._database, "SELECT 1 FROM api_key LIMIT 1"))
        return self._exist

    async def _write(self, work: Any) -> ApiKey:
        key: ApiKey = await self._database.submit(work)
        return key


def _found(db: sqlite3.Connection, id: str) -> ApiKey:
    row = db.execute(f"SELECT {_KEY_COLUMNS} FROM api_key WHERE id = ?", (id,)).fetchone()
    if row is None:
        raise key_not_found(id)
    return key_of(row)


_AUDIT_COLUMNS = "number, id, at, actor, action, target, details, outcome"
_READ = (
    f"SELECT {_AUDIT_COLUMNS} FROM log WHERE number < ?1 AND (?2 IS NULL OR actor = ?2)"
    " AND (?3 IS NULL OR action = ?3 OR substr(action, 1, length(?3) + 1) = ?3 || '.')"
    " AND (?4 IS NULL OR target = ?4) ORDER BY number DESC LIMIT ?5"
)
_WRITE = (
    "INSERT OR IGNORE INTO log (id, at, actor, action, target, details, outcome) VALUES (?, ?, ?, ?, ?, ?, ?)"
)
_LAST = 2**63 - 1


class SqliteAuditLog:
    """Entries in the order they were written."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def write(self, entry: AuditEntry) -> None:
        await self._database.submit(lambda db: db.execute(_WRITE, entry_row(entry)).rowcount)

    async def read(
        self, wanted: AuditFilter = ALL_ENTRIES, *, before: int | None = None, limit: int = 100
    ) -> list[AuditEntry]:
        last = _LAST if before is None else before
        given = (last, wanted.actor, wanted.action, wanted.target, limit)
        return [entry_of(row) for row in asked(self._database, _READ, given)]


_LIMITS = msgspec.json.Decoder(Limits)
_RUNNING = (
    "SELECT count(*) FROM"
    " (SELECT 1 FROM execution WHERE workflow = ? AND status IN ('running', 'paused') LIMIT ?)"
)
_ENDED = (
    "DELETE FROM limited_start WHERE subject = ? AND NOT EXISTS"
    " (SELECT 1 FROM execution WHERE id = limited_start.execution AND end IS NULL)"
)


class SqliteStartLimits:
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


def check_start_limits(
    db: sqlite3.Connection, execution: ExecutionRecord, held: AppliedLimits
) -> StartLimitError | None:
    """Why a start that is new is refused; counted as one where it is not."""
    if held.full:
        return start_limit_error(FULL, "", full=held.full)
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


def _over(db: sqlite3.Connection, row: _Row, now: int) -> StartLimitError | None:
    most, bucket = row.limits.running, row.bucket
    if most is not None and _running(db, row.subject, most) >= most:
        return start_limit_error(RUNNING, row.subject)
    if bucket is not None:
        pause = bucket.pause(bucket.level(row.level, now - row.filled_at))
        if pause:
            return start_limit_error(RATE, row.subject, pause)
    return None


def _running(db: sqlite3.Connection, subject: str, most: int) -> int:
    kind, _, name = subject.partition(":")
    if kind == "workflow":
        (count,) = db.execute(_RUNNING, (name, most)).fetchone()
    else:
        db.execute(_ENDED, (subject,))
        (count,) = db.execute("SELECT count(*) FROM limited_start WHERE subject = ?", (subject,)).fetchone()
    return int(count)


def _count(db: sqlite3.Connection, row: _Row, execution: ExecutionRecord) -> None:
    bucket = row.bucket
    if bucket is not None:
        left = bucket.level(row.level, execution.at - row.filled_at) - bucket.period
        db.execute(
            "UPDATE start_limit SET level = ?, filled_at = ? WHERE subject = ?",
            (left, max(row.filled_at, execution.at), row.subject),
        )
    if row.limits.running is not None and row.subject.startswith("key:"):
        db.execute("INSERT INTO limited_start VALUES (?, ?)", (row.subject, execution.id))
