"""Opens the stores of the embedded backend, all of them in one SQLite file, with its blobs, counts and bulk jobs."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from rune.adapters.sqlite.database import Database
from rune.adapters.sqlite.journal import SqliteJournal
from rune.adapters.sqlite.owner import make_data_folder
from rune.adapters.sqlite.queue import SqliteQueue
from rune.adapters.sqlite.retention import SqliteRetention
from rune.adapters.sqlite.state import Plans, SqliteState
from rune.ports.bulk import KEPT_MS, BulkJob, BulkOutcome, BulkStatus, BulkTarget, Outcome
from rune.ports.clock import Clock
from rune.ports.queries import COUNTED_MS, StatusCount

_JOB = msgspec.msgpack.Decoder(BulkJob)
_OUTCOME = msgspec.msgpack.Decoder(BulkOutcome)
_ENCODER = msgspec.msgpack.Encoder()
_COUNTS = "SELECT outcome, count(*) FROM bulk_target WHERE job = ? AND outcome IS NOT NULL GROUP BY outcome"
_OUTCOMES = (
    "SELECT body FROM bulk_target WHERE job = ?1 AND place > ?2 AND outcome IS NOT NULL"
    " AND (?3 IS NULL OR outcome = ?3) ORDER BY place LIMIT ?4"
)


class SqliteStores:
    """The stores of the embedded backend over one file."""

    def __init__(
        self, path: Path, clock: Clock, *, relaxed: bool = False, database: Database | None = None
    ) -> None:
        """`database` is one that is open already, for example for reading only."""
        if database is None:
            make_data_folder(path)
        self.database = database or Database(path, relaxed=relaxed)
        self.journal = SqliteJournal(self.database, clock)
        self.blob = SqliteBlobs(self.database)
        self.queue = SqliteQueue()
        self.retention = SqliteRetention(self.database, self.journal)
        self._clock = clock

    def state(self, plans: Plans) -> SqliteState:
        """Create the state. It needs plans to fold facts."""
        return SqliteState(self.journal, plans, self._clock)


class SqliteBlobs:
    """Implements the blob store in the database file."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def put(self, key: str, data: bytes) -> None:
        row = (key.split("/", 1)[0], key, data)
        await self._database.submit(
            lambda db: db.execute("INSERT OR REPLACE INTO blob VALUES (?, ?, ?)", row)
        )

    async def get(self, key: str) -> bytes | None:
        row = self._database.reader.execute(
            "SELECT data FROM blob WHERE execution = ? AND key = ?", (key.split("/", 1)[0], key)
        ).fetchone()
        return row[0] if row else None

    async def delete(self, execution: str) -> int:
        count: int = await self._database.submit(
            lambda db: db.execute("DELETE FROM blob WHERE execution = ?", (execution,)).rowcount
        )
        return count


class SqliteCounts:
    """Implements the store of counts."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, begin: int, counts: Sequence[StatusCount]) -> bool:
        end = begin + COUNTED_MS

        def work(db: sqlite3.Connection) -> bool:
            known = db.execute("SELECT low, high FROM ended_count_range").fetchone()
            low, high = known or (end, begin)
            if known is not None and begin != high and end != low:
                return False
            db.execute(
                "INSERT OR REPLACE INTO ended_count_range VALUES (1, ?, ?)", (min(low, begin), max(high, end))
            )
            db.executemany(
                "INSERT INTO ended_count (bucket, workflow, status, count) VALUES (?, ?, ?, ?)",
                [(begin, each.workflow, each.status, each.count) for each in counts],
            )
            return True

        added: bool = await self._database.submit(work)
        return added


class SqliteBulkJobs:
    """Implements the store of bulk jobs."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def create(self, job: BulkJob, executions: Sequence[str]) -> BulkJob:
        def work(db: sqlite3.Connection) -> BulkJob:
            known = _find(db, job.id)
            if known is not None:
                return known
            over = "SELECT id FROM bulk_job WHERE at < ? AND status <> 'running'"
            db.execute(f"DELETE FROM bulk_target WHERE job IN ({over})", (job.at - KEPT_MS,))
            db.execute("DELETE FROM bulk_job WHERE at < ? AND status <> 'running'", (job.at - KEPT_MS,))
            db.execute(
                "INSERT INTO bulk_job (id, at, status, leased_until, body) VALUES (?, ?, ?, 0, ?)",
                (job.id, job.at, job.status, _ENCODER.encode(job)),
            )
            db.executemany(
                "INSERT INTO bulk_target (job, place, execution) VALUES (?, ?, ?)",
                [(job.id, place, each) for place, each in enumerate(executions)],
            )
            return job

        created: BulkJob = await self._database.submit(work)
        return created

    async def find(self, id: str) -> BulkJob | None:
        return _find(self._database.reader, id)

    async def list(self, limit: int) -> Sequence[BulkJob]:
        db = self._database.reader
        rows = db.execute("SELECT body, status FROM bulk_job ORDER BY at DESC, id DESC LIMIT ?", (limit,))
        return [_job(db, *row) for row in rows.fetchall()]

    async def claim(self, now: int, until: int) -> BulkJob | None:
        text = "SELECT id FROM bulk_job WHERE status = 'running' AND leased_until <= ? ORDER BY at LIMIT 1"
        if self._database.reader.execute(text, (now,)).fetchone() is None:
            return None

        def work(db: sqlite3.Connection) -> BulkJob | None:
            row = db.execute(text, (now,)).fetchone()
            if row is None:
                return None
            db.execute("UPDATE bulk_job SET leased_until = ? WHERE id = ?", (until, row[0]))
            return _find(db, row[0])

        claimed: BulkJob | None = await self._database.submit(work)
        return claimed

    async def pending(self, id: str, limit: int) -> Sequence[BulkTarget]:
        rows = self._database.reader.execute(
            "SELECT place, execution FROM bulk_target WHERE job = ? AND outcome IS NULL ORDER BY place LIMIT ?",
            (id, limit),
        )
        return [BulkTarget(*row) for row in rows.fetchall()]

    async def record(self, id: str, outcomes: Sequence[BulkOutcome], until: int) -> BulkStatus:
        def work(db: sqlite3.Connection) -> Any:
            db.executemany(
                "UPDATE bulk_target SET outcome = ?, body = ? WHERE job = ? AND place = ? AND outcome IS NULL",
                [(each.outcome, _ENCODER.encode(each), id, each.place) for each in outcomes],
            )
            db.execute("UPDATE bulk_job SET leased_until = ? WHERE id = ?", (until, id))
            db.execute(
                "UPDATE bulk_job SET status = 'completed' WHERE id = ?1 AND status = 'running'"
                " AND NOT EXISTS (SELECT 1 FROM bulk_target WHERE job = ?1 AND outcome IS NULL)",
                (id,),
            )
            row = db.execute("SELECT status FROM bulk_job WHERE id = ?", (id,)).fetchone()
            return "aborted" if row is None else row[0]

        status: BulkStatus = await self._database.submit(work)
        return status

    async def abort(self, id: str) -> bool:
        changed: int = await self._database.submit(
            lambda db: (
                db.execute(
                    "UPDATE bulk_job SET status = 'aborted' WHERE id = ? AND status = 'running'", (id,)
                ).rowcount
            )
        )
        return changed > 0

    async def outcomes(
        self, id: str, *, after: int = -1, limit: int = 100, outcome: Outcome | None = None
    ) -> Sequence[BulkOutcome]:
        rows = self._database.reader.execute(_OUTCOMES, (id, after, outcome, limit))
        return [_OUTCOME.decode(row[0]) for row in rows.fetchall()]


def _find(db: sqlite3.Connection, id: str) -> BulkJob | None:
    row = db.execute("SELECT body, status FROM bulk_job WHERE id = ?", (id,)).fetchone()
    return None if row is None else _job(db, *row)


def _job(db: sqlite3.Connection, body: bytes, status: Any) -> BulkJob:
    job = _JOB.decode(body)
    counts: dict[str, int] = dict(db.execute(_COUNTS, (job.id,)).fetchall())
    return msgspec.structs.replace(job, status=status, counts=counts)
