"""The database file: one writer thread that commits in groups, and one reader.

Writes that are submitted while a group is being written form the next group: a single write is not delayed, and a
thousand at once cost one fsync. Rows are inserted with few wide statements, because SQLite releases the GIL once per
statement and the event loop competes for it.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec

from rune.adapters.private_files import create_private_file, restrict_file
from rune.adapters.rows import end_terms
from rune.adapters.sqlite.connection import connect
from rune.adapters.sqlite.list_reader import ListReader
from rune.adapters.sqlite.schema import begun_file, migrate
from rune.core.definition.model import HOOKED
from rune.core.execution.fact import ExecutionEnded
from rune.ports.journal import (
    StoreDamagedError,
    StoreUnavailableError,
    dead_letter_code,
)

MIN_FREE_BYTES = 64 * 1024
"""With less, the next write may fail; a group of writes rarely needs more."""

BUSY_TIMEOUT_MS = 10_000
"""How long a connection waits for a lock of another one."""

SIDE_FILES = ("-wal", "-shm")
"""Suffixes of the files that SQLite keeps beside a database; the first has writes that are not in the file yet."""

WriteFunction = Callable[[sqlite3.Connection], Any]

Row = tuple[int, int, int, bytes, int, int, int, bytes]
"""Execution, kind, node, path, number, seq, late, body."""

_WIDTHS = (64, 16, 4, 1)  # rows per statement
_INSERT_FACTS = "INSERT INTO fact (execution, kind, node, path, number, seq, late, body) VALUES "
_INSERT_CLAIMS = "INSERT OR IGNORE INTO claim (execution, node, path, fence, at) VALUES "
_ENCODER = msgspec.msgpack.Encoder()


def _statements(head: str, columns: int) -> dict[int, str]:
    row = "(" + ", ".join("?" * columns) + ")"
    return {width: head + ", ".join([row] * width) for width in _WIDTHS}


_FACT_STATEMENTS = _statements(_INSERT_FACTS, 8)
_CLAIM_STATEMENTS = _statements(_INSERT_CLAIMS, 5)
_START_STATEMENTS = _statements(
    "INSERT INTO execution (n, id, workflow, hash, at, wake_at, accepted) VALUES ", 7
)
_TERM_STATEMENTS = _statements("INSERT OR IGNORE INTO execution_term (term, n) VALUES ", 2)
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


class Database:
    """The connections to the file and the writer thread. Reads see every acknowledged write."""

    def __init__(self, path: Path, *, relaxed: bool = False) -> None:
        self.path = path
        self._relaxed = relaxed
        self._pending: deque[Write] = deque()
        self._wakeup = threading.Condition()
        self._stopping = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._rejected_claims: list[tuple[Any, ...]] = []  # of groups that could not be written
        self._make_files_private()
        self._writer = self._connect()
        migrate(self._writer)
        self.opened = self._increment_openings()
        self.reader = self._connect(read_only=True)
        self.lists = ListReader(self)
        self._thread = threading.Thread(target=self._run, name="rune-writer", daemon=True)
        self.groups = 0
        self.write_failed = False

    def _increment_openings(self) -> int:
        """Count this opening for writing and return how often the file was opened so far."""
        try:
            (count,) = self._writer.execute(
                "INSERT INTO opening VALUES (1, 1) ON CONFLICT (one) DO UPDATE SET count = count + 1 RETURNING count"
            ).fetchone()
        except sqlite3.Error as error:
            raise store_error(self.path, error, "cannot write to ") from error
        return int(count)

    def _make_files_private(self) -> None:
        """Create the file, or restrict an existing one to its owner. SQLite gives its side files the same mode."""
        file = Path(os.path.realpath(self.path))
        check_not_empty(self.path)
        try:
            create_private_file(file, begun_file())
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise StoreUnavailableError(f"cannot open {self.path}: {reason}") from error
        for suffix in SIDE_FILES:
            restrict_file(file.with_name(file.name + suffix))

    def _connect(self, *, read_only: bool = False) -> sqlite3.Connection:
        uri = f"{Path(os.path.realpath(self.path)).as_uri()}{'?mode=ro' if read_only else ''}"
        try:
            connection = connect(uri, uri=True, isolation_level=None, check_same_thread=False)
            connection.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
            connection.execute("PRAGMA cache_size = -16384")
            if not read_only:
                # First, because SQLite applies it only to an empty file.
                connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
                connection.execute("PRAGMA secure_delete = FAST")
                connection.execute("PRAGMA journal_mode = WAL")
                connection.execute(f"PRAGMA synchronous = {'NORMAL' if self._relaxed else 'FULL'}")
                connection.execute("PRAGMA wal_autocheckpoint = 4000")
        except sqlite3.Error as error:
            raise store_error(self.path, error, "cannot open ") from error
        return connection

    def connect_reader(self) -> sqlite3.Connection:
        """Open another reader, for long queries. The caller closes it."""
        return self._connect(read_only=True)

    def connect_keeper(self) -> sqlite3.Connection:
        """Open a connection for checkpoints of the write-ahead log. The caller closes it."""
        return self._connect()

    def start(self) -> None:
        """Start the writer thread. Results are delivered to the running event loop."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    async def check_writable(self) -> None:
        """Raise StoreUnavailableError if the disk is full or the last write failed and still fails. While writes
        succeed, nothing is written."""
        free = shutil.disk_usage(self.path.resolve().parent).free
        if free < MIN_FREE_BYTES:
            raise StoreUnavailableError(f"{self.path}: the disk is full: {free:,} bytes are free")
        if self.write_failed:
            await self.submit(lambda db: db.execute("UPDATE opening SET count = count").fetchall())

    def submit(self, work: WriteFunction) -> asyncio.Future[Any]:
        """Submit a write. The future is resolved when the write is durable."""
        assert self._loop is not None
        future: asyncio.Future[Any] = asyncio.Future(loop=self._loop)
        self._enqueue(Write(work, future))
        return future

    def _enqueue(self, write: Write) -> None:
        self._pending.append(write)
        if len(self._pending) == 1:
            with self._wakeup:
                self._wakeup.notify()

    def _run(self) -> None:
        while self._wait():
            self._write_pending()
        if self._rejected_claims:
            self._write([])

    def _wait(self) -> bool:
        """Wait for a write; return whether there is one, or the database is being closed."""
        with self._wakeup:
            while not self._pending and not self._stopping:
                self._wakeup.wait(0.2)
        return bool(self._pending)

    def _write_pending(self) -> None:
        """Write all writes that were submitted so far as a group, or one that is exclusive."""
        group = [self._pending.popleft()]
        if type(group[0].work) is ExclusiveWrite:
            self._write_alone(group[0])
        else:
            while self._pending and type(self._pending[0].work) is not ExclusiveWrite:
                group.append(self._pending.popleft())
            self._write(group)
        self._notify(group)

    def _write_alone(self, write: Write) -> None:
        try:
            write.answer = write.work(self._writer)
        except sqlite3.Error as error:
            write.error = store_error(self.path, error)
        except Exception as error:
            write.error = error
        finally:
            self._roll_back()

    def _write(self, group: list[Write]) -> None:
        """Write a group in one transaction. If a write fails, repeat the group with a savepoint for each write, so that
        only the failing ones are rejected.

        Claims are written even if the facts they were submitted with are rejected: with the same group, or, if the file
        cannot be written, with the next one. So no result is stored without the claims that preceded it.
        """
        self.groups += 1
        try:
            self._writer.execute("BEGIN IMMEDIATE")
            rows: list[Rows] = []
            starts: list[Start] = []
            for write in group:
                if type(write.work) is Rows:
                    rows.append(write.work)
                elif type(write.work) is Start:
                    starts.append(write.work)
                else:
                    write.answer = write.work(self._writer)
            write_starts(self._writer, starts)
            write_rows(self._writer, rows)
            self._commit()
            self.write_failed = False
        except Exception:
            self._roll_back()
            self._write_one_by_one(group)

    def _commit(self) -> None:
        if self._rejected_claims:
            insert_claims(self._writer, self._rejected_claims)
        self._writer.execute("COMMIT")
        self._rejected_claims.clear()

    def _write_one_by_one(self, group: list[Write]) -> None:
        try:
            self._writer.execute("BEGIN IMMEDIATE")
            for write in group:
                self._write_one(write)
            self._commit()
            self.write_failed = False
        except sqlite3.Error as error:
            self.write_failed = True
            self._roll_back()
            for write in group:
                write.error = store_error(self.path, error)
                if type(write.work) is Rows:
                    self._rejected_claims += write.work.claims

    def _write_one(self, write: Write) -> None:
        self._writer.execute("SAVEPOINT one")
        try:
            write.answer = write.work(self._writer)
            self._writer.execute("RELEASE one")
        except sqlite3.OperationalError:
            raise  # a problem of the file, such as a full disk, fails the whole group
        except Exception as error:
            self._writer.execute("ROLLBACK TO one")
            self._writer.execute("RELEASE one")
            write.error = error
            if type(write.work) is Rows:
                insert_claims(self._writer, write.work.claims)

    def _roll_back(self) -> None:
        if self._writer.in_transaction:
            self._writer.execute("ROLLBACK")

    def _notify(self, group: list[Write]) -> None:
        assert self._loop is not None
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(_resolve, group)

    def close(self) -> None:
        """Complete pending writes and close the file."""
        self._stopping = True
        with self._wakeup:
            self._wakeup.notify()
        if self._thread.is_alive():
            self._thread.join()
        self.lists.close()
        self.reader.close()
        self._writer.close()


class ExclusiveWrite:
    """A write that is not grouped with others. It manages its own transactions."""

    __slots__ = ("work",)

    def __init__(self, work: WriteFunction) -> None:
        self.work = work

    def __call__(self, db: sqlite3.Connection) -> Any:
        return self.work(db)


class Write(msgspec.Struct, eq=False):
    """A submitted write with the future of its result."""

    work: WriteFunction
    future: asyncio.Future[Any]
    answer: Any = None
    error: BaseException | None = None


class Rows(msgspec.Struct, eq=False):
    """A write of facts of one execution, with claims of any execution. `end` is the end of the execution if it is among
    the facts; `status` is its new status in lists."""

    execution: str
    facts: list[Row]
    claims: list[tuple[Any, ...]]
    end: ExecutionEnded | None
    wake_at: int | None = None
    status: str | None = None
    terms: Sequence[str] = ()
    hooked: bool = False  # the end has a hook although it is none of a failure
    late_at: int | None = None  # the execution is late

    def __call__(self, db: sqlite3.Connection) -> None:
        write_rows(db, [self])


class Start:
    """A write of one accepted execution and the terms that it is found by."""

    __slots__ = ("row", "terms")

    def __init__(self, row: tuple[Any, ...], terms: Sequence[str] = ()) -> None:
        self.row = row
        self.terms = terms

    def __call__(self, db: sqlite3.Connection) -> None:
        write_starts(db, [self])


def write_starts(db: sqlite3.Connection, group: Sequence[Start]) -> None:
    _insert(db, _START_STATEMENTS, [each.row for each in group])
    insert_terms(db, [(term, each.row[0]) for each in group for term in each.terms])


def insert_terms(db: sqlite3.Connection, rows: Sequence[tuple[str, int]]) -> None:
    """Insert what executions are found by; terms that are stored already are skipped."""
    _insert(db, _TERM_STATEMENTS, rows)


def insert_facts(db: sqlite3.Connection, rows: Sequence[Row]) -> None:
    _insert(db, _FACT_STATEMENTS, rows)


def insert_claims(db: sqlite3.Connection, rows: Sequence[tuple[Any, ...]]) -> None:
    """Insert claims; those that are stored already are skipped."""
    _insert(db, _CLAIM_STATEMENTS, rows)


def write_rows(db: sqlite3.Connection, group: Sequence[Rows]) -> None:
    """Insert a group of writes. A fact that is already stored fails the whole group."""
    _insert(db, _FACT_STATEMENTS, [row for each in group for row in each.facts])
    insert_claims(db, [row for each in group for row in each.claims])
    _insert(
        db, _WAKE_STATEMENTS, [(each.facts[0][0], each.wake_at) for each in group if each.wake_at is not None]
    )
    for each in group:
        if each.status is not None:
            db.execute("UPDATE execution SET status = ? WHERE n = ?", (each.status, each.facts[0][0]))
    ends = [
        (each.facts[0][0], each.end.status, each.end.at, _ENCODER.encode(each.end))
        for each in group
        if each.end is not None
    ]
    insert_terms(db, [(term, each.facts[0][0]) for each in group for term in each.terms])
    if ends:
        _insert(db, _END_STATEMENTS, ends)
        _insert_dead_letters(db, group)
        terms = [
            (term, each.facts[0][0]) for each in group if each.end is not None for term in end_terms(each.end)
        ]
        insert_terms(db, terms)

    _insert_hooks(db, group)


def _insert_dead_letters(db: sqlite3.Connection, group: Sequence[Rows]) -> None:
    for each in group:
        code = None if each.end is None else dead_letter_code(each.end)
        if each.end is not None and code is not None:
            db.execute(
                "INSERT OR IGNORE INTO dead_letter (execution, code, at) VALUES (?, ?, ?)",
                (each.execution, code, each.end.at),
            )


def _insert_hooks(db: sqlite3.Connection, group: Sequence[Rows]) -> None:
    hooks = [
        (each.execution, "failure", each.end.at)
        for each in group
        if each.end is not None and (each.hooked or each.end.status in HOOKED)
    ]
    hooks += [(each.execution, "late", each.late_at) for each in group if each.late_at is not None]
    for row in hooks:
        db.execute("INSERT OR IGNORE INTO hook (execution, kind, at, until) VALUES (?, ?, ?, 0)", row)


def _insert(db: sqlite3.Connection, statements: dict[int, str], rows: Sequence[tuple[Any, ...]]) -> None:
    start = 0
    for width, statement in statements.items():
        while len(rows) - start >= width:
            db.execute(statement, tuple(chain.from_iterable(rows[start : start + width])))
            start += width


def _resolve(group: list[Write]) -> None:
    for write in group:
        future = write.future
        if future.done():
            continue
        if write.error is not None:
            future.set_exception(write.error)
        else:
            future.set_result(write.answer)


def read(database: Database, statement: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the rows of a query; none if the table does not exist, as in a read-only file of an older version."""
    try:
        return database.reader.execute(statement, values).fetchall()
    except sqlite3.Error as error:
        if str(error).startswith("no such table"):
            return []
        raise store_error(database.path, error, "cannot read ") from None


_DAMAGE = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})


def is_damage(error: sqlite3.Error) -> bool:
    """Return whether SQLite reports that the content of the file is wrong."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return code in _DAMAGE or str(error).startswith("Could not decode to UTF-8")


def store_error(path: Path, error: sqlite3.Error, doing: str = "") -> StoreUnavailableError:
    """Return the error of the port for an error of SQLite."""
    if is_damage(error):
        return damage_error(path, error)
    return StoreUnavailableError(f"{doing}{path}: {error}" if doing else f"{path}: {error}")


def damage_error(path: Path, error: Exception) -> StoreDamagedError:
    return StoreDamagedError(
        f"{path} is damaged: {error}; `rune restore BACKUP --replace` replaces it with a backup"
    )


def check_not_empty(path: Path) -> None:
    """Raise if the file exists and is empty: it has lost its content, and must not be taken for a new one."""
    if path.is_file() and path.stat().st_size == 0:
        raise StoreDamagedError(
            f"{path} is empty: it has lost its content;"
            " `rune restore BACKUP --replace` replaces it with a backup; delete it to begin with a new one"
        )


@contextmanager
def reporting_errors(path: Path) -> Iterator[None]:
    """Context in which errors of SQLite that leave the block are raised as errors of the port."""
    try:
        yield
    except sqlite3.Error as error:
        raise store_error(path, error, "cannot read ") from error


@contextmanager
def reporting_damage(path: Path) -> Iterator[None]:
    """As `reporting_errors`, for blocks that only read: a stored value that cannot be decoded is damage as well."""
    with reporting_errors(path):
        try:
            yield
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise damage_error(path, error) from error
