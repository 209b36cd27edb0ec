"""Retention in PostgreSQL: removes ended executions in short transactions that block no other work.

Executions are selected newest first, so that one which needs results of an earlier execution is removed before it.
PostgreSQL reuses the space of removed rows but returns it to the disk only when `vacuum` rewrites the tables.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from rune.adapters.postgres.database import Database, Row, query
from rune.adapters.postgres.expectations import PostgresExpectations
from rune.adapters.postgres.journal import PostgresJournal
from rune.adapters.rows import LATE
from rune.ports.journal import BlobStore, StoreUnavailableError
from rune.ports.retention import KEY_LIFE_MS, Progress, RetentionResult, Rule, applicable

PAGE_SIZE = 256
REMOVAL_BATCH = 64
MAX_ROWS_AT_ONCE, MAX_BLOBS_AT_ONCE = 500, 16
"""An execution with more rows or blobs is removed in several transactions."""

SWEEP_ROWS, SWEEP_BLOBS = 5_000, 64
RELEASE_MS = 120_000
"""How long the id of an execution stays blocked while its blobs are deleted from an external store; the deletion may
take half of it."""

UNMARKED = -1
"""Mark that no row carries: the row is left to the next sweep."""

TABLES = (
    "execution", "fact", "claim", "outbox", "dead_letter", "client_key", "blob", "needs", "removed", "definition",
)  # fmt: skip

_UNBOUNDED = 2**62

Bound = tuple[int, int]
"""End time and number of an execution; a rule selects executions before it."""


class Candidate(NamedTuple):
    """An execution that a rule selects."""

    n: int
    id: str
    ended_at: int


class Selection:
    """Iterates over the selected executions by workflow. Every page is one statement; no cursor stays open."""

    def __init__(self, database: Database, rules: Sequence[Rule], now: int) -> None:
        self._database = database
        self._rules = rules
        self._now = now
        self._workflow = ""
        self._bounds: dict[str, Bound] = {}
        self._cursor: Bound | None = None

    @property
    def workflow(self) -> str:
        """The workflow of the last page."""
        return self._workflow

    async def page(self, limit: int) -> list[Candidate]:
        """Return the next candidates, and an empty list after the last."""
        while True:
            if self._cursor is None and not await self._enter_next():
                return []
            assert self._cursor is not None
            bounds = list(self._bounds.items())
            rows = await self._database.fetch(
                query("select_candidates"),
                self._workflow,
                *self._cursor,
                [status for status, _ in bounds],
                [bound[0] for _, bound in bounds],
                [bound[1] for _, bound in bounds],
                limit,
            )
            if rows:
                found = [Candidate(*row) for row in rows]
                self._cursor = (found[-1].ended_at, found[-1].n)
                return found
            self._cursor = None

    async def _enter_next(self) -> bool:
        """Advance to the next workflow with selected executions."""
        while True:
            row = await self._database.row(query("next_workflow"), self._workflow)
            if row is None:
                return False
            self._workflow = row["workflow"]
            self._bounds = await self._bounds_of(applicable(self._rules, self._workflow))
            if self._bounds:
                self._cursor = max(self._bounds.values())
                return True

    async def _bounds_of(self, rules: Sequence[Rule]) -> dict[str, Bound]:
        """Return the bound of each status. An execution needs to match one rule only, so the latest bound counts."""
        bounds: dict[str, Bound] = {}
        for rule in rules:
            bound = await self._bound(rule)
            if bound is None:
                continue
            for status in rule.statuses:
                bounds[status] = max(bound, bounds.get(status, bound))
        return bounds

    async def _bound(self, rule: Rule) -> Bound | None:
        """Return the bound of a rule, None if it selects nothing."""
        bound = (_UNBOUNDED, _UNBOUNDED) if rule.older_than is None else (self._now - rule.older_than + 1, -1)
        if not rule.keep:
            return bound
        row = await self._database.row(query("last_kept"), self._workflow, list(rule.statuses), rule.keep - 1)
        return None if row is None else min(bound, (row["ended_at"], row["n"]))


class PostgresRetention:
    """Runs one collection at a time in this process; other processes may run one concurrently. `outside` is the blob
    store if blobs are not in the database."""

    def __init__(
        self, database: Database, journal: PostgresJournal, outside: BlobStore | None = None
    ) -> None:
        self._database = database
        self._journal = journal
        self._outside = outside
        self._turn = asyncio.Lock()

    async def collect(
        self, rules: Sequence[Rule], now: int, *, progress: Progress | None = None
    ) -> RetentionResult:
        async with self._turn:
            collection = Collection(self._database, self._journal, self._outside, now, progress)
            return await collection.run(rules)

    async def preview(self, rules: Sequence[Rule], now: int) -> RetentionResult:
        """Return the minimum that a collection would remove, without writing."""
        began = time.perf_counter()
        selection = Selection(self._database, rules, now)
        count = 0
        while page := await selection.page(PAGE_SIZE):
            (row,) = await self._database.fetch(query("count_removable"), [each.n for each in page])
            count += row["count"]
        size = await _size(self._database)
        took = round((time.perf_counter() - began) * 1000)
        return RetentionResult(executions=count, bytes_before=size, bytes_after=size, duration_ms=took)

    async def check_vacuum(self) -> None:
        """Raise unless the user may rewrite the tables."""
        for row in await self._database.fetch(query("table_owner"), list(TABLES)):
            raise StoreUnavailableError(
                f"{self._database.where}: {row['this_user']} may not rewrite the tables (VACUUM FULL): use the"
                f" user of their owner, {row['owner']}"
            )

    async def vacuum(self) -> tuple[int, int]:
        """Rewrite the tables without free space and return their size before and after. Writers are blocked."""
        await self.check_vacuum()
        async with self._turn:
            before = await _size(self._database)
            async with self._database.connection() as connection:
                for table in TABLES:
                    await connection.execute(f"VACUUM (FULL, ANALYZE) {table}", timeout=None)
            return before, await _size(self._database)


class Collection:
    """One run of retention."""

    def __init__(
        self,
        database: Database,
        journal: PostgresJournal,
        outside: BlobStore | None,
        now: int,
        progress: Progress | None,
    ) -> None:
        self._database = database
        self._journal = journal
        self._outside = outside
        self._expectations = PostgresExpectations(database)
        self._now = now
        self._progress = progress
        self._began = time.perf_counter()
        self._longest = 0.0
        self._so_far = RetentionResult()

    async def run(self, rules: Sequence[Rule]) -> RetentionResult:
        """Remove selected executions, then unused definitions and expired idempotency keys."""
        size = await _size(self._database)
        self._so_far = msgspec.structs.replace(self._so_far, bytes_before=size, bytes_after=size)
        await self._sweep()
        while await self._pass(rules):
            pass
        await self._drop_definitions()
        while dropped := (await self._timed("forget_client_keys", self._now, PAGE_SIZE))["count"]:
            self._count(keys=dropped)
        self._so_far = msgspec.structs.replace(self._so_far, bytes_after=await _size(self._database))
        return self._count()

    async def _timed(self, name: str, *values: Any) -> Row:
        began = time.perf_counter()
        (row,) = await self._database.fetch(query(name), *values)
        self._longest = max(self._longest, time.perf_counter() - began)
        return row

    async def _pass(self, rules: Sequence[Rule]) -> bool:
        """Remove what the rules select. Return whether executions that were kept because others needed them may be
        removable now."""
        selection = Selection(self._database, rules, self._now)
        needed = freed = 0
        while page := await selection.page(PAGE_SIZE):
            # All completions among the selected executions are visible now, and will not be later.
            await self._expectations.note_completions(selection.workflow)
            for start in range(0, len(page), REMOVAL_BATCH):
                chunk = page[start : start + REMOVAL_BATCH]
                done = await self._remove(chunk)
                needed += len(chunk) - len(done["gone"])
                freed += done["freed"]
        await self._sweep()
        return bool(needed and freed)

    async def _remove(self, chunk: Sequence[Candidate]) -> Row:
        done = await self._timed(
            "remove",
            [each.n for each in chunk],
            [each.id for each in chunk],
            self._now,
            LATE,
            KEY_LIFE_MS,
            MAX_ROWS_AT_ONCE,
            MAX_BLOBS_AT_ONCE,
            self._outside is not None,
        )
        if done["gone"]:
            self._journal.forget([each.id for each in chunk])
            self._count(executions=len(done["gone"]), facts=done["facts"], blobs=done["blobs"])
        return done

    async def _sweep(self) -> None:
        """Remove remaining rows and blobs of executions that are no longer listed."""
        while rows := await self._database.fetch(query("removed"), self._now, REMOVAL_BATCH):
            marks, outside_blobs = {row["n"]: row["leaving"] for row in rows}, 0
            if self._outside is not None:
                # crash here: the rows of `removed` are kept, so the next sweep deletes the same blobs again
                for row in rows:
                    if not row["reused"]:
                        marks[row["n"]], deleted = await self._delete_outside(
                            self._outside, row["n"], row["id"]
                        )
                        outside_blobs += deleted
            done = await self._timed(
                "sweep", list(marks), list(marks.values()), self._now, LATE, SWEEP_ROWS, SWEEP_BLOBS
            )
            if done["facts"] or done["blobs"] or outside_blobs:
                self._count(facts=done["facts"], blobs=done["blobs"] + outside_blobs)

    async def _delete_outside(self, outside: BlobStore, n: int, id: str) -> tuple[int, int]:
        """Delete the blobs of an id while the id is blocked. Return the mark that blocks it and the number of blobs.
        After a failure the mark stays until it expires, because a deletion may still be in progress."""
        async with self._database.transaction() as connection:
            await connection.execute(query("id_lock"), id)
            mark = await connection.fetchval(query("block_id"), n, RELEASE_MS)
        if mark is None:
            return UNMARKED, 0
        try:
            async with asyncio.timeout(RELEASE_MS / 2000):
                return mark, await outside.delete(id)
        except TimeoutError as error:
            raise StoreUnavailableError(f"the blobs of {id} could not be deleted in time") from error

    async def _drop_definitions(self) -> None:
        last = ""
        while rows := await self._database.fetch(query("unused_definitions"), last, PAGE_SIZE):
            last = rows[-1]["hash"]
            hashes = sorted({row["hash"] for row in rows} - self._journal.saved)
            began = time.perf_counter()
            async with self._database.transaction() as connection:
                await connection.execute(query("definition_lock"), hashes)
                dropped = await connection.fetchval(query("drop_definitions"), hashes)
            self._longest = max(self._longest, time.perf_counter() - began)
            self._count(definitions=dropped)

    def _count(self, **more: int) -> RetentionResult:
        self._so_far = msgspec.structs.replace(
            self._so_far,
            duration_ms=round((time.perf_counter() - self._began) * 1000),
            longest_ms=round(self._longest * 1000),
            **{name: getattr(self._so_far, name) + count for name, count in more.items()},
        )
        if self._progress is not None:
            self._progress(self._so_far)
        return self._so_far


async def _size(database: Database) -> int:
    (row,) = await database.fetch(query("table_size"), list(TABLES))
    return int(row["bytes"])
