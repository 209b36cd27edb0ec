"""Opens all stores that the cluster has in PostgreSQL, with its counts and bulk jobs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from operator import itemgetter
from typing import NamedTuple

import msgspec

from rune.adapters.postgres.database import Database, Row, query
from rune.adapters.postgres.journal import PostgresBlobs, PostgresIndex, PostgresJournal, PostgresOutbox
from rune.adapters.postgres.retention import PostgresRetention
from rune.adapters.postgres.workflows import PostgresWorkflows
from rune.adapters.rows import failed_hook, handler_defaults, hook_row
from rune.ports.journal import HOOK_HOLD_MS, MAX_HOOK_HOLD_MS, BlobStore, FailedHook, HandlerDefaults, HookRow
from rune.ports.queries import (
    COUNTED_MS,
    KEPT_MS,
    BulkJob,
    BulkOutcome,
    BulkStatus,
    BulkTarget,
    Outcome,
    StatusCount,
)

_JOB = msgspec.msgpack.Decoder(BulkJob)
_OUTCOME = msgspec.msgpack.Decoder(BulkOutcome)
_ENCODER = msgspec.msgpack.Encoder()


class PostgresStores:
    """The stores over one database."""

    def __init__(self, database: Database, outside: BlobStore | None = None) -> None:
        self.database = database
        self.journal = PostgresJournal(database)
        self.blob = outside or PostgresBlobs(database)
        self.workflows = PostgresWorkflows(database)
        self.retention = PostgresRetention(database, self.journal, outside)
        self.index = PostgresIndex(database)
        self.outbox = PostgresOutbox(database)


@asynccontextmanager
async def postgres(
    dsn: str, *, outside: BlobStore | None = None, read_only: bool = False
) -> AsyncIterator[PostgresStores]:
    """Open the stores while the block runs. `outside` is the blob store if blobs are not in the database."""
    database = Database(dsn, read_only=read_only)
    await database.open()
    opened = PostgresStores(database, outside)
    try:
        yield opened
    finally:
        await opened.outbox.close()
        await opened.journal.close()


class ClusterIdentity(NamedTuple):
    """The id of a journal, and the number of partitions of its state; empty and None before the first start. `database`
    tells the database from its copies, which have the same id; empty if the user may not ask for it."""

    journal: str
    partitions: int | None
    database: str = ""


async def cluster_identity(database: Database) -> ClusterIdentity:
    """Return what tells this cluster from others."""
    rows = await database.fetch(query("cluster_identity"))
    if not rows:
        return ClusterIdentity("", None)
    (found,) = rows
    ((server,),) = await database.fetch(query("server_identity")) if found["may_ask"] else ((None,),)
    name = "" if server is None else f"{server}:{found['database']}"
    return ClusterIdentity(found["journal"], found["partitions"], name)


async def create_identity(database: Database) -> ClusterIdentity:
    """Return what tells this cluster from others, created at its first start."""
    found = await cluster_identity(database)
    if found.journal:
        return found
    await database.fetch(query("cluster_create"))
    return await cluster_identity(database)


async def settle_partitions(database: Database, partitions: int) -> None:
    """Record the number of partitions, unless there is one."""
    await database.fetch(query("cluster_settle"), partitions)


class PostgresHooks:
    """Handlers to start."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def take(self, limit: int) -> list[HookRow]:
        rows = await self._database.fetch(query("hook_take"), limit, HOOK_HOLD_MS, MAX_HOOK_HOLD_MS)
        return [hook_row(row) for row in sorted(rows, key=itemgetter("number"))]

    async def done(self, numbers: Sequence[int]) -> None:
        await self._database.fetch(query("hook_done"), list(numbers))

    async def fail(self, number: int, error: str, given_up: int | None = None) -> None:
        await self._database.fetch(query("hook_fail"), number, error, given_up)

    async def failed(self, limit: int) -> list[FailedHook]:
        return [failed_hook(row) for row in await self._database.fetch(query("hook_failed"), limit)]

    async def defaults(self) -> HandlerDefaults:
        rows = await self._database.fetch(query("handler_defaults"))
        return handler_defaults(rows[0]["body"] if rows else None)

    async def put_defaults(self, defaults: HandlerDefaults) -> None:
        await self._database.fetch(query("handler_put_defaults"), msgspec.json.encode(defaults).decode())

    async def forget(self, before: int) -> int:
        return len(await self._database.fetch(query("hook_forget"), before))


class PostgresCounts:
    """Counts by period. Of two processes that store the same period one wins: the row of the range is locked."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, begin: int, counts: Sequence[StatusCount]) -> bool:
        row = await self._database.once(
            query("counts_add"),
            begin,
            begin + COUNTED_MS,
            [each.workflow for each in counts],
            [each.status for each in counts],
            [each.count for each in counts],
        )
        return row is not None


class PostgresBulkJobs:
    """Bulk jobs. Of several processes that claim at once each gets another job."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def create(self, job: BulkJob, executions: Sequence[str]) -> BulkJob:
        await self._database.fetch(
            query("bulk_create"),
            job.id,
            job.at,
            job.status,
            _ENCODER.encode(job),
            [*executions],
            job.at - KEPT_MS,
        )
        return await self.find(job.id) or job

    async def find(self, id: str) -> BulkJob | None:
        row = await self._database.find(query("bulk_find"), id)
        return None if row is None else (await self._jobs([row]))[0]

    async def list(self, limit: int) -> Sequence[BulkJob]:
        return await self._jobs(await self._database.find_all(query("bulk_list"), limit))

    async def _jobs(self, rows: Sequence[Row]) -> Sequence[BulkJob]:
        jobs = [msgspec.structs.replace(_JOB.decode(row["body"]), status=row["status"]) for row in rows]
        counts: dict[str, dict[str, int]] = {}
        ids = [each.id for each in jobs]
        for row in await self._database.find_all(query("bulk_counts"), ids) if jobs else ():
            counts.setdefault(row["job"], {})[row["outcome"]] = row["count"]
        return [msgspec.structs.replace(each, counts=counts.get(each.id, {})) for each in jobs]

    async def claim(self, now: int, until: int) -> BulkJob | None:
        row = await self._database.once(query("bulk_claim"), now, until)
        return None if row is None else await self.find(row["id"])

    async def pending(self, id: str, limit: int) -> Sequence[BulkTarget]:
        rows = await self._database.fetch(query("bulk_pending"), id, limit)
        return [BulkTarget(row["place"], row["execution"]) for row in rows]

    async def record(self, id: str, outcomes: Sequence[BulkOutcome], until: int) -> BulkStatus:
        await self._database.fetch(
            query("bulk_record"),
            id,
            [each.place for each in outcomes],
            [each.outcome for each in outcomes],
            [_ENCODER.encode(each) for each in outcomes],
            until,
        )
        (row,) = await self._database.fetch(query("bulk_complete"), id)
        status: BulkStatus = row["status"]
        return status

    async def abort(self, id: str) -> bool:
        return await self._database.once(query("bulk_abort"), id) is not None

    async def outcomes(
        self, id: str, *, after: int = -1, limit: int = 100, outcome: Outcome | None = None
    ) -> Sequence[BulkOutcome]:
        rows = await self._database.fetch(query("bulk_outcomes"), id, after, outcome, limit)
        return [_OUTCOME.decode(row["body"]) for row in rows]
