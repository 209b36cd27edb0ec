"""The selection: ended executions that rules select, read in pages, the newest first.

The newest first, because they lie at the end of the file: what is freed there can be cut off at once, and an
execution that holds results of an earlier one goes before it.

Removal: what the writer does to make executions disappear, in acts that are short whatever the executions hold.

An execution that is small goes whole in one transaction. A large one is taken off the list of executions in one
transaction, which is the moment at which it is gone for everybody; its number is noted in `removed`, and its rows
follow in pieces. A process that dies in between leaves the note, and the next collection goes on from it.

An execution that ended moments ago may still have a node that lets go of its last result. Its number is noted too and
looked at again later, so that nothing is left behind.

Retention in SQLite: removes in short acts through the writer, and gives the space back to the disk.
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
from rune.adapters.sqlite.journal import SqliteJournal
from rune.ports.retention import ENDED, KEY_LIFE_MS, Progress, RetentionResult, Rule, applicable

_NEVER = 2**62
_NEXT_WORKFLOW = (
    "SELECT workflow FROM execution INDEXED BY execution_ended"
    " WHERE ended_at IS NOT NULL AND workflow > ? ORDER BY workflow LIMIT 1"
)

FREE = (
    "candidate.ended_at IS NOT NULL"
    " AND NOT EXISTS (SELECT 1 FROM needs WHERE other = candidate.id AND execution <> candidate.id)"
    " AND NOT EXISTS (SELECT 1 FROM execution parent"
    " WHERE parent.id = candidate.parent AND parent.ended_at IS NULL)"
)
"""Nobody needs the candidate, nobody waits for it."""


class Candidate(NamedTuple):
    """An execution that a rule selects."""

    n: int
    id: str
    ended_at: int


Bound = tuple[int, int]
"""When it ended and its number; a rule selects what lies before."""


class Selection:
    """Walks workflow by workflow. Every page is a query of its own: nothing is held open in between."""

    def __init__(self, db: sqlite3.Connection, rules: Sequence[Rule], now: int) -> None:
        self._db = db
        self._rules = rules
        self._now = now
        self._workflow = ""
        self._query = ""
        self._arguments: list[object] = []
        self._cursor: Bound | None = None

    def page(self, limit: int) -> list[Candidate]:
        """The next ones; none when all were seen."""
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
        """How many of a page could go now."""
        marks = ", ".join("?" * len(page))
        (count,) = self._db.execute(
            f"SELECT count(*) FROM execution candidate WHERE n IN ({marks}) AND {FREE}",
            [each.n for each in page],
        ).fetchone()
        return int(count)

    def _enter_next(self) -> bool:
        """Go on to the next workflow of which something is selected."""
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
        self._arguments = [each for rule, bound in bounds for each in (*(rule.status or ENDED), *bound)]
        self._cursor = max(bound for _, bound in bounds)
        self._query = (
            "SELECT n, id, ended_at FROM execution INDEXED BY execution_ended"
            f" WHERE workflow = ? AND ended_at IS NOT NULL AND (ended_at, n) < (?, ?) AND ({wanted})"
            " ORDER BY ended_at DESC, n DESC LIMIT ?"
        )

    def _bound(self, rule: Rule) -> Bound | None:
        """Where the part that a rule selects begins; None if it selects nothing."""
        bound = (_NEVER, _NEVER) if rule.older_than is None else (self._now - rule.older_than + 1, -1)
        if not rule.keep:
            return bound
        last_kept: Bound | None = self._db.execute(
            "SELECT ended_at, n FROM execution INDEXED BY execution_ended"
            f" WHERE workflow = ? AND ended_at IS NOT NULL AND status IN ({_rule_placeholders(rule)})"
            " ORDER BY ended_at DESC, n DESC LIMIT 1 OFFSET ?",
            (self._workflow, *(rule.status or ENDED), rule.keep - 1),
        ).fetchone()
        return None if last_kept is None else min(bound, last_kept)


def _rule_placeholders(rule: Rule) -> str:
    return ", ".join("?" * len(rule.status or ENDED))


BUDGET = 0.010
"""Seconds that one act may take of the writer before it commits."""

AT_ONCE = 64
FIRST = 16
MAX_ROWS = 2_000
MAX_BLOBS = 64
MAX_BYTES = 8 * 1024 * 1024
PIECE = 500
BLOB_PIECE = 16


class Removed(msgspec.Struct):
    """What one act did. `taken`: how much of its page is dealt with."""

    taken: int = 0
    ids: list[str] = []
    needed: int = 0  # could not go
    freed: int = 0  # references that are gone, so that others may go
    facts: int = 0
    blobs: int = 0


def remove(db: sqlite3.Connection, page: Sequence[Candidate], now: int, budget: float = BUDGET) -> Removed:
    """Remove as many of a page as the budget allows, at least one. What the last few took tells how many more fit."""
    done = Removed()
    began = before = time.perf_counter()
    size = FIRST
    while done.taken < len(page) and size:
        chunk = page[done.taken : done.taken + size]
        free = _free(db, chunk)
        small = not free or _small(db, free)
        if not small and len(chunk) > 1:
            size = max(1, len(chunk) // 4)
            continue
        if free:
            _take(db, free, now, done, small=small)
        done.needed += len(chunk) - len(free)
        done.taken += len(chunk)
        moment = time.perf_counter()
        left = began + budget - moment
        size = min(AT_ONCE, size * 2, int(left / (moment - before) * len(chunk))) if left > 0 else 0
        before = moment
    return done


def sweep(db: sqlite3.Connection, now: int, budget: float = BUDGET) -> Removed:
    """Remove what was left over of executions that are off the list; `taken` is 0 when nothing is."""
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
        if not _piece(db, each, done):
            continue
        if _recent(each, now):
            db.execute("UPDATE removed SET until = ? WHERE n = ?", (now + LATE, each.n))
        else:
            db.execute("DELETE FROM removed WHERE n = ?", (each.n,))
    return done


def forget_keys(db: sqlite3.Connection, now: int) -> int:
    """Drop some of the client keys whose time is over."""
    return db.execute(
        "DELETE FROM client_key WHERE key IN"
        " (SELECT key FROM client_key WHERE expires IS NOT NULL AND expires <= ? LIMIT ?)",
        (now, PIECE),
    ).rowcount


def unused_definitions(db: sqlite3.Connection, after: str, limit: int) -> list[str]:
    """Hashes of definitions that no execution and no stored version names, behind a hash."""
    rows = db.execute(
        f"SELECT hash FROM definition WHERE hash > ? AND {_UNUSED} ORDER BY hash LIMIT ?", (after, limit)
    )
    return [row[0] for row in rows]


def drop_definitions(db: sqlite3.Connection, hashes: Sequence[str], spared: Container[str]) -> int:
    """Drop those that are still unused, but for the ones that somebody is about to name."""
    count = 0
    for hash in hashes:
        if hash not in spared:
            count += db.execute(f"DELETE FROM definition WHERE hash = ? AND {_UNUSED}", (hash,)).rowcount
    return count


_UNUSED = (
    "NOT EXISTS (SELECT 1 FROM execution WHERE execution.hash = definition.hash)"
    " AND NOT EXISTS (SELECT 1 FROM version WHERE version.hash = definition.hash)"
)


def _free(db: sqlite3.Connection, chunk: Sequence[Candidate]) -> list[Candidate]:
    """Those that may go at this moment: between the choice and this act a lot can have happened."""
    rows = db.execute(
        f"SELECT n, id, ended_at FROM execution candidate WHERE n IN ({_placeholders(chunk)}) AND {FREE}",
        [each.n for each in chunk],
    )
    return [Candidate(*row) for row in rows]


def _small(db: sqlite3.Connection, group: Sequence[Candidate]) -> bool:
    """Whether everything of a group can go in one act."""
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
    return bool(rows <= MAX_ROWS and blobs <= MAX_BLOBS and size <= MAX_BYTES)


def _take(
    db: sqlite3.Connection, group: Sequence[Candidate], now: int, done: Removed, *, small: bool
) -> None:
    """Take executions off the list, with their rows if there are few."""
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
    noted = [(*each, now + LATE if small else 0) for each in group if not small or _recent(each, now)]
    db.executemany("INSERT INTO removed (n, id, ended_at, until) VALUES (?, ?, ?, ?)", noted)
    done.ids += ids


def _piece(db: sqlite3.Connection, each: Candidate, done: Removed) -> bool:
    """Remove some rows of an execution that is off the list; whether these were the last."""
    facts = _some(db, "fact", "kind, node, path, number", each.n)
    claims = _some(db, "claim", "node, path, fence", each.n)
    # A new execution may have been given the same id: the blobs are now its own.
    blobs = db.execute(
        "DELETE FROM blob WHERE rowid IN (SELECT rowid FROM blob WHERE execution = ?1 LIMIT ?2)"
        " AND NOT EXISTS (SELECT 1 FROM execution WHERE id = ?1)",
        (each.id, BLOB_PIECE),
    ).rowcount
    done.facts += facts
    done.blobs += blobs
    return facts < PIECE and claims < PIECE and blobs < BLOB_PIECE


def _some(db: sqlite3.Connection, table: str, key: str, n: int) -> int:
    """Remove the first rows of an execution. By a bound, because a list of keys would be looked up one by one among
    all rows of a node."""
    bound = db.execute(
        f"SELECT {key} FROM {table} WHERE execution = ? ORDER BY {key} LIMIT 1 OFFSET ?", (n, PIECE)
    ).fetchone()
    if bound is None:
        return db.execute(f"DELETE FROM {table} WHERE execution = ?", (n,)).rowcount
    marks = ", ".join("?" * len(bound))
    return db.execute(
        f"DELETE FROM {table} WHERE execution = ? AND ({key}) < ({marks})", (n, *bound)
    ).rowcount


def _recent(each: Candidate, now: int) -> bool:
    return now - each.ended_at < LATE


def _placeholders(group: Sequence[Candidate]) -> str:
    return ", ".join("?" * len(group))


T = TypeVar("T")

PAGE = 256
INCREMENTAL = 2
LEFT_FREE = 256
"""Free pages that are not worth an act of their own while more will follow."""

MIN_PAGES, MAX_PAGES = 16, 8_192
TARGET = 0.025
"""Seconds that an act is to take with its commit; those that follow a longer one are given less to do."""

MIN_BUDGET = BUDGET / 2
ACTS = 8
"""After so many acts the write-ahead log is written back, so that no commit has much of it to do."""

_MANY = 2**62
MOMENT = 50
"""How long the last act waits for readers to let go of the write-ahead log, in ms."""


class Look:
    """A reader in a thread of its own: a long look disturbs neither the loop nor the writer."""

    def __init__(self, database: Database) -> None:
        self.db = database.connect_reader()
        self.keeper = database.connect_keeper()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="rune-retention")

    async def __call__(self, question: Callable[..., T], *arguments: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, question, *arguments)

    def __enter__(self) -> Look:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.submit(self.db.close)  # behind a question that nobody waits for any more
        self._thread.submit(self.keeper.close)
        self._thread.shutdown(wait=False)


class SqliteRetention:
    """Collects one set of rules at a time."""

    def __init__(self, database: Database, journal: SqliteJournal) -> None:
        self._database = database
        self._journal = journal
        self._turn = asyncio.Lock()

    async def collect(
        self, rules: Sequence[Rule], now: int, *, progress: Progress | None = None
    ) -> RetentionResult:
        async with self._turn:
            with Look(self._database) as look:
                return await Collection(self._database, self._journal, look, now, progress).run(rules)

    async def vacuum(self) -> tuple[int, int]:
        """Write the file anew without gaps, in a form that shrinks from then on; its size before and after. Nothing
        else is written meanwhile."""
        async with self._turn:
            before = file_bytes(self._database.path)
            await self._database.submit(ExclusiveWrite(_vacuum))
            return before, file_bytes(self._database.path)


class Collection:
    """One run."""

    def __init__(
        self, database: Database, journal: SqliteJournal, look: Look, now: int, progress: Progress | None
    ) -> None:
        self._database = database
        self._journal = journal
        self._look = look
        self._now = now
        self._progress = progress
        self._began = time.perf_counter()
        self._longest = 0.0
        self._pages = MIN_PAGES
        self._budget = BUDGET
        self._acts = 0
        (mode,) = look.db.execute("PRAGMA auto_vacuum").fetchone()
        self._so_far = RetentionResult(bytes_before=file_bytes(database.path), shrinks=mode == INCREMENTAL)

    async def run(self, rules: Sequence[Rule]) -> RetentionResult:
        """Remove, tidy up, cut off what is free."""
        await self._sweep()
        while await self._pass(rules):
            pass
        await self._drop_definitions()
        while dropped := await self._act(lambda db: forget_keys(db, self._now)):
            self._count(keys=dropped)
        await self._shrink(0)
        await self._look(_flush, self._look.keeper)
        await self._act(ExclusiveWrite(_truncate))
        return self._count()

    async def _act(self, work: WriteFunction) -> Any:
        began = time.perf_counter()
        answer = await self._database.submit(work)
        took = time.perf_counter() - began
        self._acts += 1
        self._longest = max(self._longest, took)
        within = took <= TARGET
        self._budget = min(BUDGET, self._budget * 1.25) if within else max(MIN_BUDGET, self._budget / 2)
        return answer

    async def _write_back(self) -> None:
        """Bring the write-ahead log into the file beside the writer, which does not wait for it."""
        if self._acts >= ACTS:
            self._acts = 0
            await self._look(_flush, self._look.keeper)

    async def _pass(self, rules: Sequence[Rule]) -> bool:
        """Everything that the rules select; whether what stayed because others needed it may be free now."""
        selection = Selection(self._look.db, rules, self._now)
        needed = freed = 0
        while page := await self._look(selection.page, PAGE):
            while page:
                work = partial(remove, page=page, now=self._now, budget=self._budget)
                done: Removed = await self._act(work)
                page = page[done.taken :]
                needed += done.needed
                freed += done.freed
                self._note(done)
            await self._shrink(LEFT_FREE)
            await self._write_back()
        await self._sweep()
        return bool(needed and freed)

    async def _sweep(self) -> None:
        while True:
            done: Removed = await self._act(partial(sweep, now=self._now, budget=self._budget))
            self._note(done)
            if not done.taken:
                return
            await self._shrink(LEFT_FREE)
            await self._write_back()

    async def _drop_definitions(self) -> None:
        last = ""
        while hashes := await self._look(unused_definitions, self._look.db, last, PAGE):
            last = hashes[-1]
            spared = self._journal.saved & set(hashes)
            work = partial(drop_definitions, hashes=hashes, spared=spared)
            dropped = await self._act(work)
            self._count(definitions=dropped)

    async def _shrink(self, leave: int) -> None:
        """Cut free pages off the end of the file, moving there what lies behind them."""
        before = _MANY
        while self._so_far.shrinks:
            free, took = await self._act(ExclusiveWrite(lambda db: _cut(db, self._pages, leave)))
            if free <= leave or free >= before:
                return
            before = free
            await self._write_back()
            if took < BUDGET / 2:
                self._pages = min(MAX_PAGES, self._pages * 2)
            elif took > BUDGET:
                self._pages = max(MIN_PAGES, self._pages // 2)

    def _note(self, done: Removed) -> None:
        for execution in done.ids:
            self._journal.forget(execution)
        if done.ids or done.facts or done.blobs:
            self._count(executions=len(done.ids), facts=done.facts, blobs=done.blobs)

    def _count(self, **more: int) -> RetentionResult:
        self._so_far = msgspec.structs.replace(
            self._so_far,
            bytes_after=file_bytes(self._database.path),
            duration_ms=round((time.perf_counter() - self._began) * 1000),
            longest_ms=round(self._longest * 1000),
            **{name: getattr(self._so_far, name) + count for name, count in more.items()},
        )
        if self._progress is not None:
            self._progress(self._so_far)
        return self._so_far


def preview(db: sqlite3.Connection, path: Path, rules: Sequence[Rule], now: int) -> RetentionResult:
    """What a collection would remove at least; nothing is written."""
    began = time.perf_counter()
    (mode,) = db.execute("PRAGMA auto_vacuum").fetchone()
    selection = Selection(db, rules, now)
    count = 0
    while page := selection.page(PAGE):
        count += selection.free(page)
    size = file_bytes(path)
    took = round((time.perf_counter() - began) * 1000)
    return RetentionResult(
        executions=count, bytes_before=size, bytes_after=size, duration_ms=took, shrinks=mode == INCREMENTAL
    )


def _vacuum(db: sqlite3.Connection) -> None:
    db.execute("PRAGMA auto_vacuum = INCREMENTAL")
    db.execute("VACUUM")
    _truncate(db)


def file_bytes(path: Path) -> int:
    """What the file and its write-ahead log take."""
    parts = (path, path.with_name(path.name + "-wal"))
    return sum(part.stat().st_size for part in parts if part.exists())


def _cut(db: sqlite3.Connection, pages: int, leave: int) -> tuple[int, float]:
    """Cut off some pages; answers how many are free, and how long it took."""
    began = time.perf_counter()
    (free,) = db.execute("PRAGMA freelist_count").fetchone()
    if free > leave:
        # A script, because a single statement is stepped but once and would cut off a single page.
        db.executescript(f"BEGIN IMMEDIATE; PRAGMA incremental_vacuum({pages}); COMMIT")
        (free,) = db.execute("PRAGMA freelist_count").fetchone()
    return free, time.perf_counter() - began


def _flush(db: sqlite3.Connection) -> None:
    db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()


def _truncate(db: sqlite3.Connection) -> None:
    """Empty the write-ahead log, unless somebody still reads from it: then a later write does."""
    db.execute(f"PRAGMA busy_timeout = {MOMENT}")
    try:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    finally:
        db.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
