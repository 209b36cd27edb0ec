"""Retention in SQLite: removes in short acts through the writer, and gives the space back to the disk."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import msgspec

from rune.adapters.embedded import removal
from rune.adapters.embedded.database import PATIENCE, Alone, Database, Work
from rune.adapters.embedded.journal import EmbeddedJournal
from rune.adapters.embedded.removal import BUDGET, Removed
from rune.adapters.embedded.selection import Selection
from rune.ports.retention import Collected, Progress, Rule

T = TypeVar("T")

PAGE = 256
INCREMENTAL = 2
LEFT_FREE = 256
"""Free pages that are not worth an act of their own while more will follow."""

LEAST_PAGES, MOST_PAGES = 16, 8_192
TARGET = 0.025
"""Seconds that an act is to take with its commit; those that follow a longer one are given less to do."""

LEAST_BUDGET = BUDGET / 2
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


class EmbeddedRetention:
    """Collects one set of rules at a time."""

    def __init__(self, database: Database, journal: EmbeddedJournal) -> None:
        self._database = database
        self._journal = journal
        self._turn = asyncio.Lock()

    async def collect(
        self, rules: Sequence[Rule], now: int, *, progress: Progress | None = None
    ) -> Collected:
        async with self._turn:
            with Look(self._database) as look:
                return await Collection(self._database, self._journal, look, now, progress).run(rules)

    async def vacuum(self) -> tuple[int, int]:
        """Write the file anew without gaps, in a form that shrinks from then on; its size before and after. Nothing
        else is written meanwhile."""
        async with self._turn:
            before = file_bytes(self._database.path)
            await self._database.submit(Alone(_vacuum))
            return before, file_bytes(self._database.path)


class Collection:
    """One run."""

    def __init__(
        self, database: Database, journal: EmbeddedJournal, look: Look, now: int, progress: Progress | None
    ) -> None:
        self._database = database
        self._journal = journal
        self._look = look
        self._now = now
        self._progress = progress
        self._began = time.perf_counter()
        self._longest = 0.0
        self._pages = LEAST_PAGES
        self._budget = BUDGET
        self._acts = 0
        (mode,) = look.db.execute("PRAGMA auto_vacuum").fetchone()
        self._so_far = Collected(bytes_before=file_bytes(database.path), shrinks=mode == INCREMENTAL)

    async def run(self, rules: Sequence[Rule]) -> Collected:
        """Remove, tidy up, cut off what is free."""
        await self._sweep()
        while await self._pass(rules):
            pass
        await self._drop_definitions()
        while dropped := await self._act(lambda db: removal.forget_keys(db, self._now)):
            self._count(keys=dropped)
        await self._shrink(0)
        await self._look(_flush, self._look.keeper)
        await self._act(Alone(_truncate))
        return self._count()

    async def _act(self, work: Work) -> Any:
        began = time.perf_counter()
        answer = await self._database.submit(work)
        took = time.perf_counter() - began
        self._acts += 1
        self._longest = max(self._longest, took)
        within = took <= TARGET
        self._budget = min(BUDGET, self._budget * 1.25) if within else max(LEAST_BUDGET, self._budget / 2)
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
                work = partial(removal.remove, page=page, now=self._now, budget=self._budget)
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
            done: Removed = await self._act(partial(removal.sweep, now=self._now, budget=self._budget))
            self._note(done)
            if not done.taken:
                return
            await self._shrink(LEFT_FREE)
            await self._write_back()

    async def _drop_definitions(self) -> None:
        last = ""
        while hashes := await self._look(removal.unused_definitions, self._look.db, last, PAGE):
            last = hashes[-1]
            spared = self._journal.saved & set(hashes)
            work = partial(removal.drop_definitions, hashes=hashes, spared=spared)
            dropped = await self._act(work)
            self._count(definitions=dropped)

    async def _shrink(self, leave: int) -> None:
        """Cut free pages off the end of the file, moving there what lies behind them."""
        before = _MANY
        while self._so_far.shrinks:
            free, took = await self._act(Alone(lambda db: _cut(db, self._pages, leave)))
            if free <= leave or free >= before:
                return
            before = free
            await self._write_back()
            if took < BUDGET / 2:
                self._pages = min(MOST_PAGES, self._pages * 2)
            elif took > BUDGET:
                self._pages = max(LEAST_PAGES, self._pages // 2)

    def _note(self, done: Removed) -> None:
        for execution in done.ids:
            self._journal.forget(execution)
        if done.ids or done.facts or done.blobs:
            self._count(executions=len(done.ids), facts=done.facts, blobs=done.blobs)

    def _count(self, **more: int) -> Collected:
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


def preview(db: sqlite3.Connection, path: Path, rules: Sequence[Rule], now: int) -> Collected:
    """What a collection would remove at least; nothing is written."""
    began = time.perf_counter()
    (mode,) = db.execute("PRAGMA auto_vacuum").fetchone()
    selection = Selection(db, rules, now)
    count = 0
    while page := selection.page(PAGE):
        count += selection.free(page)
    size = file_bytes(path)
    took = round((time.perf_counter() - began) * 1000)
    return Collected(
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
        db.execute(f"PRAGMA busy_timeout = {PATIENCE}")
