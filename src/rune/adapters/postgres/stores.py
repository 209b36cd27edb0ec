"""Opens all stores that the cluster has in PostgreSQL, blobs included."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from rune.adapters.postgres.database import Database, query
from rune.adapters.postgres.journal import PostgresIndex, PostgresJournal
from rune.adapters.postgres.outbox import PostgresOutbox
from rune.adapters.postgres.retention import PostgresRetention
from rune.adapters.postgres.workflows import PostgresWorkflows
from rune.ports.blobs import BlobStore


class PostgresBlobs:
    """Blobs by key; the part of a key before the first slash is the execution."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._reads: dict[str, asyncio.Task[bytes | None]] = {}

    async def put(self, key: str, data: bytes) -> None:
        await self._database.fetch(query("blob_put"), key.partition("/")[0], key, data)

    async def get(self, key: str) -> bytes | None:
        """Return the blob of a key. Concurrent reads of one key share a query: hundreds of fan-out items read the same
        page of their list at once."""
        if self._database.in_snapshot:
            return await self._get(key)
        read = self._reads.get(key)
        if read is None:
            read = self._reads[key] = asyncio.create_task(self._get(key))
            read.add_done_callback(lambda _: self._reads.pop(key, None))
        return await asyncio.shield(read)

    async def _get(self, key: str) -> bytes | None:
        row = await self._database.find(query("blob_get"), key.partition("/")[0], key)
        return row["data"] if row is not None else None

    async def delete(self, execution: str) -> int:
        row = await self._database.once(query("blob_delete"), execution)
        return int(row["count"]) if row is not None else 0


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
