"""Opens the stores of the embedded backend, all of them in one SQLite file, with its blobs, counts and bulk jobs.

Processes other than the owner of the file have read-only access, while the owner writes.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import cache
from operator import itemgetter
from pathlib import Path
from typing import Any

import msgspec

from rune.adapters.execution_list import Dialect, ExecutionSearch, ExecutionStatistics, is_listed
from rune.adapters.private_files import restrict_file
from rune.adapters.rows import (
    failed_hook,
    handler_defaults,
    hook_row,
    list_page,
    missing_part,
    summary_of,
)
from rune.adapters.sqlite.database import Database, WriteFunction, check_not_empty, store_error
from rune.adapters.sqlite.journal import SqliteJournal
from rune.adapters.sqlite.list_reader import ListReader
from rune.adapters.sqlite.owner import make_data_folder
from rune.adapters.sqlite.queue import SqliteQueue
from rune.adapters.sqlite.retention import SqliteRetention
from rune.adapters.sqlite.schema import MIGRATIONS
from rune.adapters.sqlite.state import Plans, SqliteState
from rune.codec.facts import decode_fact, decode_path
from rune.codec.records import HEAD_BYTES
from rune.core.execution.token import Path as LineagePath
from rune.ports.clock import Clock
from rune.ports.journal import (
    HOOK_HOLD_MS,
    MAX_HOOK_HOLD_MS,
    FailedHook,
    HandlerDefaults,
    HookRow,
    NewerFormatError,
    StoreUnavailableError,
)
from rune.ports.queries import (
    ALL_EXECUTIONS,
    COUNTED_MS,
    KEPT_MS,
    STATUSES,
    BulkJob,
    BulkOutcome,
    BulkStatus,
    BulkTarget,
    ExecutionFilter,
    ExecutionsFound,
    Outcome,
    StatusCount,
    Summary,
)

EMPTY = "EMPTY_STORE"
"""Error code for a file without a schema, because nothing was ever written."""

_TAKE_HOOKS = (
    "UPDATE hook SET tries = tries + 1, until = ? + min(?, ? << min(tries, 20))"
    " WHERE number IN (SELECT number FROM hook WHERE until <= ? AND given_up IS NULL ORDER BY number LIMIT ?)"
    " RETURNING number, execution, kind, at, tries, body"
)
MAX_ROWS = 2**63 - 1
_HEAD = f"CASE WHEN length({{0}}accepted) <= {HEAD_BYTES} THEN {{0}}accepted END, length({{0}}accepted)"
_COLUMNS = f"id, workflow, hash, status, at, ended_at, {_HEAD.format('')}, end, n"
_SEARCHED = f"x.id, x.workflow, x.hash, x.status, x.at, x.ended_at, {_HEAD.format('x.')}, x.end, x.n"
_HAS_FAILED_ITEMS = "instr(end, CAST('failed_items' AS BLOB)) > 0 AND "
_NEWEST = "n < :before ORDER BY n DESC LIMIT :limit"


@cache
def list_statement(
    statuses: tuple[str, ...], *, by_workflow: bool = False, by_hash: bool = False, failed_items: bool = False
) -> str:
    """Return the statement for a page of executions.

    The index on workflow and status also serves pages of a workflow with any status: the newest of each status are
    selected, and the newest of those returned.
    """
    head = f"SELECT {_COLUMNS} FROM execution WHERE"
    tail = f"{'hash = :hash AND ' if by_hash else ''}{_HAS_FAILED_ITEMS if failed_items else ''}{_NEWEST}"
    of = "workflow = :workflow AND " if by_workflow else ""
    selected = [each for each in STATUSES if each in statuses or (by_workflow and not statuses)]
    if not statuses and not by_workflow:
        return f"{head} {tail}"
    if len(selected) == 1:
        return f"{head} {of}status = '{selected[0]}' AND {tail}"
    each = (
        f"SELECT * FROM (SELECT n FROM execution WHERE {of}status = '{name}' AND {tail})" for name in selected
    )
    return f"{head} n IN ({' UNION ALL '.join(each)}) ORDER BY n DESC LIMIT :limit"


DIALECT = Dialect(like=lambda scope: ("GLOB {}", scope))


class ReadOnlyDatabase(Database):
    """The database file opened for reading. A missing or empty file is an error."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._relaxed = True
        self.opened = 0
        restrict_file(path)
        self.reader = self._connect(read_only=True)
        self.lists = ListReader(self)
        (version,) = self._read_row("PRAGMA user_version")
        if version > len(MIGRATIONS):
            self.reader.close()
            raise NewerFormatError(
                f"{path} has schema version {version}; this version of Rune supports up to {len(MIGRATIONS)}"
            )
        if version == 0:
            self.reader.close()
            check_not_empty(path)
            raise StoreUnavailableError(f"{path} contains no executions yet", code=EMPTY)

    def _read_row(self, statement: str) -> tuple[int]:
        try:
            row: tuple[int] = self.reader.execute(statement).fetchone()
        except sqlite3.Error as error:
            raise store_error(self.path, error, "cannot read ") from error
        return row

    def submit(self, work: WriteFunction) -> asyncio.Future[Any]:
        raise StoreUnavailableError(f"{self.path} is open for reading only")

    async def version(self) -> int:
        """Return a number that changes whenever another process writes to the file."""
        return self._read_row("PRAGMA data_version")[0]

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[None]:
        """Context in which all reads see the same state of the file."""
        self.reader.execute("BEGIN")
        self.lists.pinned = self.reader
        try:
            yield
        finally:
            self.lists.pinned = None
            if self.reader.in_transaction:  # an error of the file may have ended it
                self.reader.execute("COMMIT")

    def close(self) -> None:
        self.lists.close()
        self.reader.close()


class SqliteIndex:
    """Queries for lists of executions."""

    def __init__(self, database: Database) -> None:
        self._database = database
        search = ExecutionSearch(self._fetch, self._list, _SEARCHED, DIALECT)
        self._search = search
        self.count = search.count
        self.statistics = ExecutionStatistics(self._fetch, DIALECT)

    async def search(
        self, wanted: ExecutionFilter, *, after: str | None = None, limit: int = 50
    ) -> ExecutionsFound:
        return await self._search.find(wanted, after=after, limit=limit)

    async def _fetch(self, statement: str, values: list[Any]) -> list[tuple[Any, ...]]:
        text = statement.replace("{}", "?")
        return await self._database.lists.run(lambda db: db.execute(text, values).fetchall())

    async def _list(self, statement: str, values: list[Any]) -> list[Summary]:
        text = statement.replace("{}", "?")
        return await self._database.lists.run(lambda db: _summaries(db, text, values))

    async def executions(
        self, wanted: ExecutionFilter = ALL_EXECUTIONS, *, after: str | None = None, limit: int = 50
    ) -> list[Summary]:
        if not is_listed(wanted):
            return await self._search.all(wanted, after=after, limit=limit)
        return await list_page(lambda start, most: self._page(wanted, start, most), wanted, after, limit)

    async def _page(self, wanted: ExecutionFilter, after: str | None, limit: int) -> list[Summary]:
        before: int | None = MAX_ROWS
        if after is not None:
            found = self._database.reader.execute("SELECT n FROM execution WHERE id = ?", (after,)).fetchone()
            before = found[0] if found else None
        statement = list_statement(
            wanted.statuses,
            by_workflow=wanted.workflow is not None,
            by_hash=wanted.hash is not None,
            failed_items=wanted.failed_items,
        )
        values = {"workflow": wanted.workflow, "hash": wanted.hash, "before": before, "limit": limit}
        return await self._database.lists.run(lambda db: _summaries(db, statement, values))

    async def execution(self, execution: str) -> Summary | None:
        found = _summaries(
            self._database.reader, f"SELECT {_COLUMNS} FROM execution WHERE id = ?", (execution,)
        )
        return found[0] if found else None

    async def matching(self, prefix: str, limit: int) -> list[str]:
        """Return at most `limit` ids that start with a prefix."""
        rows = self._database.reader.execute(
            "SELECT id FROM execution WHERE id >= ? AND id < ? ORDER BY id LIMIT ?",
            (prefix, prefix + "\U0010ffff", limit),
        )
        return [row[0] for row in rows]

    async def last_progress(self, execution: str) -> int | None:
        """Return the time of the newest row of an execution."""
        row = self._database.reader.execute(
            "SELECT body FROM fact WHERE execution = (SELECT n FROM execution WHERE id = ?)"
            " ORDER BY seq DESC LIMIT 1",
            (execution,),
        ).fetchone()
        return None if row is None else decode_fact(row[0]).at

    async def claims(self, execution: str) -> dict[tuple[int, LineagePath], int]:
        """Return how often each token of an execution was claimed."""
        rows = self._database.reader.execute(
            "SELECT node, path, count(*) FROM claim WHERE execution = (SELECT n FROM execution WHERE id = ?)"
            " GROUP BY node, path",
            (execution,),
        )
        return {(node, decode_path(path)): count for node, path, count in rows}


def _summaries(db: sqlite3.Connection, statement: str, values: Any) -> list[Summary]:
    """Return the executions of a list. Of large records only the first bytes are read, and what follows the input."""
    own = not db.in_transaction
    if own:
        db.execute("BEGIN")  # a row that is removed meanwhile can still be read
    try:
        return [_summary(db, *row[:-1], number=row[-1]) for row in db.execute(statement, values).fetchall()]
    finally:
        if own and db.in_transaction:
            db.execute("COMMIT")


def _summary(db: sqlite3.Connection, *row: Any, number: int) -> Summary:
    if row[6] is not None:
        return summary_of(row)
    with db.blobopen("execution", "accepted", number, readonly=True) as record:
        found = (*row[:6], record.read(HEAD_BYTES), *row[7:])
        missing = missing_part(found)
        if missing is None:
            return summary_of(found)
        known, start = missing
        record.seek(start)
        return summary_of(found, known + record.read())


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


class SqliteHooks:
    """Handlers to start."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def take(self, limit: int) -> list[HookRow]:
        now = self._clock.now()
        # Nearly always there is none, and then nothing is written.
        free = "SELECT 1 FROM hook WHERE until <= ? AND given_up IS NULL LIMIT 1"
        if self._database.reader.execute(free, (now,)).fetchone() is None:
            return []
        values = (now, MAX_HOOK_HOLD_MS, HOOK_HOLD_MS, now, limit)
        rows: list[tuple[Any, ...]] = await self._database.submit(
            lambda db: db.execute(_TAKE_HOOKS, values).fetchall()
        )
        return [hook_row(row) for row in sorted(rows, key=itemgetter(0))]

    async def done(self, numbers: Sequence[int]) -> None:
        listed = [(each,) for each in numbers]
        await self._database.submit(
            lambda db: db.executemany("DELETE FROM hook WHERE number = ?", listed).rowcount
        )

    async def fail(self, number: int, error: str, given_up: int | None = None) -> None:
        await self._database.submit(
            lambda db: db.execute(
                "UPDATE hook SET error = ?, given_up = ? WHERE number = ?", (error, given_up, number)
            )
        )

    async def failed(self, limit: int) -> list[FailedHook]:
        rows = self._database.reader.execute(
            "SELECT execution, kind, at, tries, error, given_up, body FROM hook WHERE error <> ''"
            " ORDER BY number DESC LIMIT ?",
            (limit,),
        )
        return [failed_hook(row) for row in rows]

    async def defaults(self) -> HandlerDefaults:
        row = self._database.reader.execute("SELECT body FROM handler_default").fetchone()
        return handler_defaults(None if row is None else row[0])

    async def put_defaults(self, defaults: HandlerDefaults) -> None:
        body = msgspec.json.encode(defaults).decode()
        await self._database.submit(
            lambda db: db.execute("INSERT OR REPLACE INTO handler_default (one, body) VALUES (1, ?)", (body,))
        )

    async def forget(self, before: int) -> int:
        count: int = await self._database.submit(
            lambda db: db.execute("DELETE FROM hook WHERE given_up < ?", (before,)).rowcount
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
