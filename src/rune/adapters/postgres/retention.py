"""The selection: ended executions that rules select, read in pages, the newest first, so that an execution that holds
results of an earlier one goes before it.

Retention in PostgreSQL: removes in short acts that wait for nobody and let nobody wait.

The server gives the space of what is gone to what comes next; to give it back to the disk a table has to be written
anew, which is what `vacuum` does.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from rune.adapters.postgres.database import Database, Row, query
from rune.adapters.postgres.journal import PostgresJournal
from rune.adapters.rows import LATE
from rune.ports.blobs import BlobStore
from rune.ports.journal import StoreUnavailableError
from rune.ports.retention import ENDED, KEY_LIFE_MS, Progress, RetentionResult, Rule, applicable

_FAR = 2**62

Bound = tuple[int, int]
"""When it ended and its number; a rule selects what lies before."""


class Candidate(NamedTuple):
    """An execution that a rule selects."""

    n: int
    id: str
    ended_at: int


class Selection:
    """Walks workflow by workflow. Every page is a statement of its own: nothing is held open in between."""

    def __init__(self, database: Database, rules: Sequence[Rule], now: int) -> None:
        self._database = database
        self._rules = rules
        self._now = now
        self._workflow = ""
        self._bounds: dict[str, Bound] = {}
        self._cursor: Bound | None = None

    async def page(self, limit: int) -> list[Candidate]:
        """The next ones; none when all were seen."""
        while True:
            if self._cursor is None and not await self._enter_next():
                return []
            assert self._cursor is not None
            bounds = list(self._bounds.items())
            rows = await self._database.fetch(
                query("selected"),
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
        """Go on to the next workflow of which something is selected."""
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
        """What is selected of each status: one rule is enough, so the farthest bound counts."""
        bounds: dict[str, Bound] = {}
        for rule in rules:
            bound = await self._bound(rule)
            if bound is None:
                continue
            for status in rule.status or ENDED:
                bounds[status] = max(bound, bounds.get(status, bound))
        return bounds

    async def _bound(self, rule: Rule) -> Bound | None:
        """Where the part that a rule selects begins; None if it selects nothing."""
        bound = (_FAR, _FAR) if rule.older_than is None else (self._now - rule.older_than + 1, -1)
        if not rule.keep:
            return bound
        row = await self._database.row(
            query("last_kept"), self._workflow, list(rule.status or ENDED), rule.keep - 1
        )
        return None if row is None else min(bound, (row["ended_at"], row["n"]))


PAGE = 256
AT_ONCE = 64
MANY_ROWS, MANY_BLOBS = 500, 16
"""From how many rows or blobs on an execution goes in pieces."""

PIECE, BLOB_PIECE = 5_000, 64
LEAVING = 120_000
"""How long nobody is given the id of an execution whose blobs are being removed elsewhere, in ms; the removal may take
half of it."""

UNMARKED = -1
"""No note has this mark: it is left to whoever looks next."""

TABLES = (
    "execution", "fact", "claim", "outbox", "dead_letter", "client_key", "blob", "needs", "removed", "definition",
)  # fmt: skip


class PostgresRetention:
    """Collects one set of rules at a time in this process; others may do so too. `outside`: where the blobs are, if
    not in the database."""

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
        """What a collection would remove at least; nothing is written."""
        began = time.perf_counter()
        selection = Selection(self._database, rules, now)
        count = 0
        while page := await selection.page(PAGE):
            (row,) = await self._database.fetch(query("free"), [each.n for each in page])
            count += row["count"]
        size = await _size(self._database)
        took = round((time.perf_counter() - began) * 1000)
        return RetentionResult(
            executions=count, bytes_before=size, bytes_after=size, duration_ms=took, shrinks=False
        )

    async def vacuum(self) -> tuple[int, int]:
        """Write the tables anew without gaps; their size before and after. Nothing else is written meanwhile."""
        async with self._turn:
            before = await _size(self._database)
            async with self._database.connection() as connection:
                for table in TABLES:
                    await connection.execute(f"VACUUM (FULL, ANALYZE) {table}", timeout=None)
            return before, await _size(self._database)


class Collection:
    """One run."""

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
        self._now = now
        self._progress = progress
        self._began = time.perf_counter()
        self._longest = 0.0
        self._so_far = RetentionResult(shrinks=False)

    async def run(self, rules: Sequence[Rule]) -> RetentionResult:
        """Remove, then tidy up."""
        size = await _size(self._database)
        self._so_far = msgspec.structs.replace(self._so_far, bytes_before=size, bytes_after=size)
        await self._sweep()
        while await self._pass(rules):
            pass
        await self._drop_definitions()
        while dropped := (await self._act("forget_keys", self._now, PAGE))["count"]:
            self._count(keys=dropped)
        self._so_far = msgspec.structs.replace(self._so_far, bytes_after=await _size(self._database))
        return self._count()

    async def _act(self, name: str, *values: Any) -> Row:
        began = time.perf_counter()
        (row,) = await self._database.fetch(query(name), *values)
        self._longest = max(self._longest, time.perf_counter() - began)
        return row

    async def _pass(self, rules: Sequence[Rule]) -> bool:
        """Everything that the rules select; whether what stayed because others needed it may be free now."""
        selection = Selection(self._database, rules, self._now)
        needed = freed = 0
        while page := await selection.page(PAGE):
            for start in range(0, len(page), AT_ONCE):
                chunk = page[start : start + AT_ONCE]
                done = await self._remove(chunk)
                needed += len(chunk) - len(done["gone"])
                freed += done["freed"]
        await self._sweep()
        return bool(needed and freed)

    async def _remove(self, chunk: Sequence[Candidate]) -> Row:
        done = await self._act(
            "remove",
            [each.n for each in chunk],
            [each.id for each in chunk],
            self._now,
            LATE,
            KEY_LIFE_MS,
            MANY_ROWS,
            MANY_BLOBS,
            self._outside is not None,
        )
        if done["gone"]:
            self._journal.forget([each.id for each in chunk])
            self._count(executions=len(done["gone"]), facts=done["facts"], blobs=done["blobs"])
        return done

    async def _sweep(self) -> None:
        """Remove what was left over of executions that are off the list."""
        while rows := await self._database.fetch(query("removed"), self._now, AT_ONCE):
            marks, elsewhere = {row["n"]: row["leaving"] for row in rows}, 0
            if self._outside is not None:
                for row in rows:  # crash here: the notes are still there
                    if not row["reused"]:
                        marks[row["n"]], went = await self._elsewhere(self._outside, row["n"], row["id"])
                        elsewhere += went
            done = await self._act(
                "sweep", list(marks), list(marks.values()), self._now, LATE, PIECE, BLOB_PIECE
            )
            if done["facts"] or done["blobs"] or elsewhere:
                self._count(facts=done["facts"], blobs=done["blobs"] + elsewhere)

    async def _elsewhere(self, outside: BlobStore, n: int, id: str) -> tuple[int, int]:
        """Remove the blobs of an id that nobody can get meanwhile; answers the mark that says so, and how many went.
        Who breaks off, however that comes, leaves the mark until it is over: something may still be under way."""
        async with self._database.transaction() as connection:
            await connection.execute(query("leaving_lock"), id)
            mark = await connection.fetchval(query("leaving"), n, LEAVING)
        if mark is None:
            return UNMARKED, 0
        try:
            async with asyncio.timeout(LEAVING / 2000):
                return mark, await outside.delete(id)
        except TimeoutError as error:
            raise StoreUnavailableError(f"the blobs of {id} could not be removed in time") from error

    async def _drop_definitions(self) -> None:
        last = ""
        while rows := await self._database.fetch(query("unused_definitions"), last, PAGE):
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
    (row,) = await database.fetch(query("size"), list(TABLES))
    return int(row["bytes"])
