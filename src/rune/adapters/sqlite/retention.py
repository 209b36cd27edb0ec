"""Retention in SQLite: removes ended executions in short transactions and returns the space to the disk.

A small execution is removed in one transaction. Of a large one the first transaction deletes the row in `execution` and
adds a row to `removed`; its other rows follow in pieces, and after a crash the next collection resumes from `removed`.
An execution that ended recently is added to `removed` as well, because a worker may still write its last result: the
rows are deleted again later.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Callable, Container, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, TypeVar

import msgspec

from rune.adapters.rows import LATE
from rune.adapters.sqlite.database import BUSY_TIMEOUT_MS, Database, ExclusiveWrite, WriteFunction
from rune.adapters.sqlite.expectations import note_completions
from rune.adapters.sqlite.journal import SqliteJournal
from rune.ports.retention import KEY_LIFE_MS, Progress, RetentionResult, Rule, applicable

TRANSACTION_BUDGET_S = 0.010
"""Time that one transaction may use before it commits."""

MIN_TRANSACTION_BUDGET_S = TRANSACTION_BUDGET_S / 2
TARGET_TRANSACTION_S = 0.025
"""Intended duration of a transaction with its commit; after a longer one the budget is reduced."""

PAGE_SIZE = 256  # candidates per page
FIRST_CHUNK, MAX_CHUNK = 16, 64  # candidates that are removed together

# Above these sizes an execution is removed in pieces.
MAX_ROWS = 2_000
MAX_BLOBS = 64
MAX_BLOB_BYTES = 8 * 1024 * 1024
PIECE_ROWS = 500
PIECE_BLOBS = 16

INCREMENTAL_VACUUM = 2  # value of PRAGMA auto_vacuum
MIN_FREE_PAGES = 256
"""Fewer free pages are not returned while more will follow."""

MIN_PAGES, MAX_PAGES = 16, 8_192  # free pages that are returned in one transaction
WRITES_PER_CHECKPOINT = 8
"""After this many transactions the write-ahead log is checkpointed, so that no commit has to copy much of it."""

TRUNCATE_TIMEOUT_MS = 50
"""How long the last step waits for readers of the write-ahead log."""

T = TypeVar("T")
_UNKNOWN = 2**62
_NEVER = 2**62
_NEXT_WORKFLOW = (
    "SELECT workflow FROM execution INDEXED BY execution_ended"
    " WHERE ended_at IS NOT NULL AND workflow > ? ORDER BY workflow LIMIT 1"
)

_UNUSED = (
    "NOT EXISTS (SELECT 1 FROM execution WHERE execution.hash = definition.hash)"
    " AND NOT EXISTS (SELECT 1 FROM version WHERE version.hash = definition.hash)"
)
_REMOVABLE = (
    "candidate.ended_at IS NOT NULL"
    " AND NOT EXISTS (SELECT 1 FROM needs WHERE other = candidate.id AND execution <> candidate.id)"
    " AND NOT EXISTS (SELECT 1 FROM execution parent"
    " WHERE parent.id = candidate.parent AND parent.ended_at IS NULL)"
)
"""The candidate has ended, no other execution refers to its results, and its parent is not running."""


class SqliteRetention:
    """Implements the retention port. Collections run one at a time."""

    def __init__(self, database: Database, journal: SqliteJournal) -> None:
        self._database = database
        self._journal = journal
        self._lock = asyncio.Lock()

    async def collect(
        self, rules: Sequence[Rule], now: int, *, progress: Progress | None = None
    ) -> RetentionResult:
        async with self._lock:
            with BackgroundReader(self._database) as reader:
                return await Collection(self._database, self._journal, reader, now, progress).run(rules)

    async def vacuum(self) -> tuple[int, int]:
        """Rewrite the file without free pages, in a mode in which `collect` can shrink it, and return its size before
        and after. Other writes wait."""
        async with self._lock:
            before = file_bytes(self._database.path)
            await self._database.submit(ExclusiveWrite(_vacuum))
            return before, file_bytes(self._database.path)


class Collection:
    """One run of the collector."""

    def __init__(
        self,
        database: Database,
        journal: SqliteJournal,
        reader: BackgroundReader,
        now: int,
        progress: Progress | None,
    ) -> None:
        self._database = database
        self._journal = journal
        self._reader = reader
        self._now = now
        self._progress = progress
        self._began = time.perf_counter()
        self._longest_s = 0.0
        self._pages = MIN_PAGES
        self._budget = TRANSACTION_BUDGET_S
        self._writes = 0
        (mode,) = reader.db.execute("PRAGMA auto_vacuum").fetchone()
        self._result = RetentionResult(
            bytes_before=file_bytes(database.path), shrinks=mode == INCREMENTAL_VACUUM
        )

    async def run(self, rules: Sequence[Rule]) -> RetentionResult:
        """Remove executions, unused definitions and expired keys, then return the free space."""
        await self._sweep()
        while await self._pass(rules):
            pass
        await self._drop_definitions()
        while dropped := await self._write(lambda db: forget_keys(db, self._now)):
            self._count(keys=dropped)
        await self._shrink(0)
        await self._reader(_checkpoint, self._reader.checkpointer)
        await self._write(ExclusiveWrite(_truncate))
        return self._count()

    async def _write(self, work: WriteFunction) -> Any:
        began = time.perf_counter()
        answer = await self._database.submit(work)
        took = time.perf_counter() - began
        self._writes += 1
        self._longest_s = max(self._longest_s, took)
        within = took <= TARGET_TRANSACTION_S
        self._budget = (
            min(TRANSACTION_BUDGET_S, self._budget * 1.25)
            if within
            else max(MIN_TRANSACTION_BUDGET_S, self._budget / 2)
        )
        return answer

    async def _checkpoint_if_needed(self) -> None:
        """Checkpoint the write-ahead log on another connection, so that the writer does not wait for it."""
        if self._writes >= WRITES_PER_CHECKPOINT:
            self._writes = 0
            await self._reader(_checkpoint, self._reader.checkpointer)

    async def _pass(self, rules: Sequence[Rule]) -> bool:
        """Remove what the rules select. Return whether another pass may remove more, because references to candidates
        that had to stay were deleted."""
        selection = Selection(self._reader.db, rules, self._now)
        needed = freed = 0
        while page := await self._reader(selection.page, PAGE_SIZE):
            while page:
                work = partial(remove, page=page, now=self._now, budget=self._budget)
                done: Removed = await self._write(work)
                page = page[done.taken :]
                needed += done.needed
                freed += done.freed
                self._count_removed(done)
            await self._shrink(MIN_FREE_PAGES)
            await self._checkpoint_if_needed()
        await self._sweep()
        return bool(needed and freed)

    async def _sweep(self) -> None:
        while True:
            done: Removed = await self._write(partial(sweep, now=self._now, budget=self._budget))
            self._count_removed(done)
            if not done.taken:
                return
            await self._shrink(MIN_FREE_PAGES)
            await self._checkpoint_if_needed()

    async def _drop_definitions(self) -> None:
        last = ""
        while hashes := await self._reader(unused_definitions, self._reader.db, last, PAGE_SIZE):
            last = hashes[-1]
            spared = self._journal.saved & set(hashes)
            work = partial(drop_definitions, hashes=hashes, spared=spared)
            dropped = await self._write(work)
            self._count(definitions=dropped)

    async def _shrink(self, leave: int) -> None:
        """Return free pages to the disk until at most `leave` remain. SQLite moves pages from the end of the file into
        them and truncates it."""
        before = _UNKNOWN
        while self._result.shrinks:
            free, took = await self._write(ExclusiveWrite(lambda db: _cut(db, self._pages, leave)))
            if free <= leave or free >= before:
                return
            before = free
            await self._checkpoint_if_needed()
            if took < TRANSACTION_BUDGET_S / 2:
                self._pages = min(MAX_PAGES, self._pages * 2)
            elif took > TRANSACTION_BUDGET_S:
                self._pages = max(MIN_PAGES, self._pages // 2)

    def _count_removed(self, done: Removed) -> None:
        for execution in done.ids:
            self._journal.forget(execution)
        if done.ids or done.facts or done.blobs:
            self._count(executions=len(done.ids), facts=done.facts, blobs=done.blobs)

    def _count(self, **more: int) -> RetentionResult:
        self._result = msgspec.structs.replace(
            self._result,
            bytes_after=file_bytes(self._database.path),
            duration_ms=round((time.perf_counter() - self._began) * 1000),
            longest_ms=round(self._longest_s * 1000),
            **{name: getattr(self._result, name) + count for name, count in more.items()},
        )
        if self._progress is not None:
            self._progress(self._result)
        return self._result


class BackgroundReader:
    """Runs long queries in a separate thread, so that they block neither the event loop nor the writer."""

    def __init__(self, database: Database) -> None:
        self.db = database.connect_reader()
        self.checkpointer = database.connect_keeper()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="rune-retention")

    async def __call__(self, query: Callable[..., T], *arguments: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, query, *arguments)

    def __enter__(self) -> BackgroundReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Closed in the thread, after a query whose caller was cancelled.
        self._thread.submit(self.db.close)
        self._thread.submit(self.checkpointer.close)
        self._thread.shutdown(wait=False)


class Candidate(NamedTuple):
    """An execution that the rules select."""

    n: int
    id: str
    ended_at: int


Bound = tuple[int, int]
"""End time and number of an execution; a rule selects the executions before it."""


class Selection:
    """Pages of candidates, workflow by workflow, the newest first.

    The newest rows are at the end of the file, where freed pages can be returned at once, and an execution that refers
    to results of an earlier one is removed before it. Each page is a separate query, so no read transaction stays open.
    """

    def __init__(self, db: sqlite3.Connection, rules: Sequence[Rule], now: int) -> None:
        self._db = db
        self._rules = rules
        self._now = now
        self._workflow = ""
        self._query = ""
        self._arguments: list[object] = []
        self._cursor: Bound | None = None

    def page(self, limit: int) -> list[Candidate]:
        """Return the next candidates; empty after the last page."""
        while True:
            if self._cursor is None and not self._enter_next():
                return []
            assert self._cursor is not None
            rows = self._db.execute(
                self._query, (self._workflow, *self._cursor, *self._arguments, limit)
            ).fetchall()
            if rows:
                found = [Candidate(*row) for row in rows]
                self._cursor = (found[-1].ended_at, found[-1].n)
                return found
            self._cursor = None

    def free(self, page: Sequence[Candidate]) -> int:
        """Return how many of a page could be removed now."""
        marks = ", ".join("?" * len(page))
        (count,) = self._db.execute(
            f"SELECT count(*) FROM execution candidate WHERE n IN ({marks}) AND {_REMOVABLE}",
            [each.n for each in page],
        ).fetchone()
        return int(count)

    def _enter_next(self) -> bool:
        """Advance to the next workflow with selected executions; False if there is none."""
        while True:
            row = self._db.execute(_NEXT_WORKFLOW, (self._workflow,)).fetchone()
            if row is None:
                return False
            (self._workflow,) = row
            rules = applicable(self._rules, self._workflow)
            bounds = [(rule, bound) for rule in rules if (bound := self._bound(rule)) is not None]
            if bounds:
                self._prepare(bounds)
                return True

    def _prepare(self, bounds: Sequence[tuple[Rule, Bound]]) -> None:
        wanted = " OR ".join(
            f"(status IN ({_rule_placeholders(rule)}) AND (ended_at, n) < (?, ?))" for rule, _ in bounds
        )
        self._arguments = [each for rule, bound in bounds for each in (*rule.statuses, *bound)]
        self._cursor = max(bound for _, bound in bounds)
        self._query = (
            "SELECT n, id, ended_at FROM execution INDEXED BY execution_ended"
            f" WHERE workflow = ? AND ended_at IS NOT NULL AND (ended_at, n) < (?, ?) AND ({wanted})"
            " ORDER BY ended_at DESC, n DESC LIMIT ?"
        )

    def _bound(self, rule: Rule) -> Bound | None:
        """Return the bound before which a rule selects executions; None if it selects none."""
        bound = (_NEVER, _NEVER) if rule.older_than is None else (self._now - rule.older_than + 1, -1)
        if not rule.keep:
            return bound
        last_kept: Bound | None = self._db.execute(
            "SELECT ended_at, n FROM execution INDEXED BY execution_ended"
            f" WHERE workflow = ? AND ended_at IS NOT NULL AND status IN ({_rule_placeholders(rule)})"
            " ORDER BY ended_at DESC, n DESC LIMIT 1 OFFSET ?",
            (self._workflow, *rule.statuses, rule.keep - 1),
        ).fetchone()
        return None if last_kept is None else min(bound, last_kept)


def _rule_placeholders(rule: Rule) -> str:
    return ", ".join("?" * len(rule.statuses))


class Removed(msgspec.Struct):
    """What one transaction removed. `taken`: number of candidates processed."""

    taken: int = 0
    ids: list[str] = []
    needed: int = 0  # candidates that cannot be removed yet
    freed: int = 0  # deleted references, which may make other candidates removable
    facts: int = 0
    blobs: int = 0


def remove(
    db: sqlite3.Connection, page: Sequence[Candidate], now: int, budget: float = TRANSACTION_BUDGET_S
) -> Removed:
    """Remove as many candidates as fit into the budget, at least one. The duration of a chunk determines the size of
    the next."""
    done = Removed()
    began = before = time.perf_counter()
    note_completions(db, [each.n for each in page])
    size = FIRST_CHUNK
    while done.taken < len(page) and size:
        chunk = page[done.taken : done.taken + size]
        free = _removable(db, chunk)
        small = not free or _is_small(db, free)
        if not small and len(chunk) > 1:
            size = max(1, len(chunk) // 4)
            continue
        if free:
            _remove_group(db, free, now, done, small=small)
        done.needed += len(chunk) - len(free)
        done.taken += len(chunk)
        moment = time.perf_counter()
        left = began + budget - moment
        size = min(MAX_CHUNK, size * 2, int(left / (moment - before) * len(chunk))) if left > 0 else 0
        before = moment
    return done


def sweep(db: sqlite3.Connection, now: int, budget: float = TRANSACTION_BUDGET_S) -> Removed:
    """Delete remaining rows of removed executions; `taken` is 0 when there are none."""
    done = Removed()
    ends = time.perf_counter() + budget
    while done.taken == 0 or time.perf_counter() < ends:
        row = db.execute(
            "SELECT n, id, ended_at FROM removed WHERE until <= ? ORDER BY until LIMIT 1", (now,)
        ).fetchone()
        if row is None:
            break
        done.taken += 1
        each = Candidate(*row)
        if not _remove_piece(db, each, done):
            continue
        if _ended_recently(each, now):
            db.execute("UPDATE removed SET until = ? WHERE n = ?", (now + LATE, each.n))
        else:
            db.execute("DELETE FROM removed WHERE n = ?", (each.n,))
    return done


def forget_keys(db: sqlite3.Connection, now: int) -> int:
    """Delete some of the expired idempotency keys and return how many."""
    return db.execute(
        "DELETE FROM client_key WHERE key IN"
        " (SELECT key FROM client_key WHERE expires IS NOT NULL AND expires <= ? LIMIT ?)",
        (now, PIECE_ROWS),
    ).rowcount


def unused_definitions(db: sqlite3.Connection, after: str, limit: int) -> list[str]:
    """Return hashes, above a given one, of definitions that no execution and no version refers to."""
    rows = db.execute(
        f"SELECT hash FROM definition WHERE hash > ? AND {_UNUSED} ORDER BY hash LIMIT ?", (after, limit)
    )
    return [row[0] for row in rows]


def drop_definitions(db: sqlite3.Connection, hashes: Sequence[str], spared: Container[str]) -> int:
    """Delete the definitions that are still unused, except `spared`, which starts in progress may refer to."""
    count = 0
    for hash in hashes:
        if hash not in spared:
            count += db.execute(f"DELETE FROM definition WHERE hash = ? AND {_UNUSED}", (hash,)).rowcount
    return count


def _removable(db: sqlite3.Connection, chunk: Sequence[Candidate]) -> list[Candidate]:
    """Return the candidates that can still be removed: they were selected in an earlier transaction."""
    rows = db.execute(
        f"SELECT n, id, ended_at FROM execution candidate WHERE n IN ({_placeholders(chunk)}) AND {_REMOVABLE}",
        [each.n for each in chunk],
    )
    return [Candidate(*row) for row in rows]


def _is_small(db: sqlite3.Connection, group: Sequence[Candidate]) -> bool:
    """Return whether a group can be removed in one transaction."""
    marks = _placeholders(group)
    numbers = [each.n for each in group]
    rows = 0
    for table in ("fact", "claim"):
        (count,) = db.execute(
            f"SELECT count(*) FROM (SELECT 1 FROM {table} WHERE execution IN ({marks}) LIMIT ?)",
            (*numbers, MAX_ROWS + 1),
        ).fetchone()
        rows += count
    blobs, size = db.execute(
        "SELECT count(*), coalesce(sum(size), 0) FROM"
        f" (SELECT length(data) AS size FROM blob WHERE execution IN ({marks}) LIMIT ?)",
        (*(each.id for each in group), MAX_BLOBS + 1),
    ).fetchone()
    return bool(rows <= MAX_ROWS and blobs <= MAX_BLOBS and size <= MAX_BLOB_BYTES)


def _remove_group(
    db: sqlite3.Connection, group: Sequence[Candidate], now: int, done: Removed, *, small: bool
) -> None:
    """Delete executions, and their other rows too if the group is small."""
    marks = _placeholders(group)
    numbers, ids = [each.n for each in group], [each.id for each in group]
    db.execute(f"DELETE FROM execution WHERE n IN ({marks})", numbers)
    db.execute(f"DELETE FROM dead_letter WHERE execution IN ({marks})", ids)
    done.freed += db.execute(f"DELETE FROM needs WHERE execution IN ({marks})", ids).rowcount
    db.execute(
        f"UPDATE client_key SET expires = ? WHERE execution IN ({marks}) AND expires IS NULL",
        (now + KEY_LIFE_MS, *ids),
    )
    if small:
        done.facts += db.execute(f"DELETE FROM fact WHERE execution IN ({marks})", numbers).rowcount
        db.execute(f"DELETE FROM claim WHERE execution IN ({marks})", numbers)
        done.blobs += db.execute(f"DELETE FROM blob WHERE execution IN ({marks})", ids).rowcount
    noted = [(*each, now + LATE if small else 0) for each in group if not small or _ended_recently(each, now)]
    db.executemany("INSERT INTO removed (n, id, ended_at, until) VALUES (?, ?, ?, ?)", noted)
    done.ids += ids


def _remove_piece(db: sqlite3.Connection, each: Candidate, done: Removed) -> bool:
    """Delete some rows of a removed execution and return whether they were the last."""
    facts = _remove_first_rows(db, "fact", "kind, node, path, number", each.n)
    claims = _remove_first_rows(db, "claim", "node, path, fence", each.n)
    # A new execution may have the same id; the blobs then belong to it.
    blobs = db.execute(
        "DELETE FROM blob WHERE rowid IN (SELECT rowid FROM blob WHERE execution = ?1 LIMIT ?2)"
        " AND NOT EXISTS (SELECT 1 FROM execution WHERE id = ?1)",
        (each.id, PIECE_BLOBS),
    ).rowcount
    done.facts += facts
    done.blobs += blobs
    return facts < PIECE_ROWS and claims < PIECE_ROWS and blobs < PIECE_BLOBS


def _remove_first_rows(db: sqlite3.Connection, table: str, key: str, n: int) -> int:
    """Delete the first rows of an execution. They are selected by a bound: SQLite would look up a list of keys one by
    one among all rows of a node."""
    bound = db.execute(
        f"SELECT {key} FROM {table} WHERE execution = ? ORDER BY {key} LIMIT 1 OFFSET ?", (n, PIECE_ROWS)
    ).fetchone()
    if bound is None:
        return db.execute(f"DELETE FROM {table} WHERE execution = ?", (n,)).rowcount
    marks = ", ".join("?" * len(bound))
    return db.execute(
        f"DELETE FROM {table} WHERE execution = ? AND ({key}) < ({marks})", (n, *bound)
    ).rowcount


def _ended_recently(each: Candidate, now: int) -> bool:
    return now - each.ended_at < LATE


def _placeholders(group: Sequence[Candidate]) -> str:
    return ", ".join("?" * len(group))


def preview(db: sqlite3.Connection, path: Path, rules: Sequence[Rule], now: int) -> RetentionResult:
    """Return what a collection would remove at least, without writing."""
    began = time.perf_counter()
    (mode,) = db.execute("PRAGMA auto_vacuum").fetchone()
    selection = Selection(db, rules, now)
    count = 0
    while page := selection.page(PAGE_SIZE):
        count += selection.free(page)
    size = file_bytes(path)
    took = round((time.perf_counter() - began) * 1000)
    return RetentionResult(
        executions=count,
        bytes_before=size,
        bytes_after=size,
        duration_ms=took,
        shrinks=mode == INCREMENTAL_VACUUM,
    )


def _vacuum(db: sqlite3.Connection) -> None:
    db.execute("PRAGMA auto_vacuum = INCREMENTAL")
    db.execute("VACUUM")
    _truncate(db)


def file_bytes(path: Path) -> int:
    """Return the size of the file with its write-ahead log."""
    parts = (path, path.with_name(path.name + "-wal"))
    return sum(part.stat().st_size for part in parts if part.exists())


def _cut(db: sqlite3.Connection, pages: int, leave: int) -> tuple[int, float]:
    """Return some free pages to the disk; return how many are left, and the duration in seconds."""
    began = time.perf_counter()
    (free,) = db.execute("PRAGMA freelist_count").fetchone()
    if free > leave:
        # As a script: `execute` steps the statement once, which would return a single page.
        db.executescript(f"BEGIN IMMEDIATE; PRAGMA incremental_vacuum({pages}); COMMIT")
        (free,) = db.execute("PRAGMA freelist_count").fetchone()
    return free, time.perf_counter() - began


def _checkpoint(db: sqlite3.Connection) -> None:
    db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()


def _truncate(db: sqlite3.Connection) -> None:
    """Truncate the write-ahead log. If a connection still reads from it, a later checkpoint does."""
    db.execute(f"PRAGMA busy_timeout = {TRUNCATE_TIMEOUT_MS}")
    try:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    finally:
        db.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
