"""Opens what PostgreSQL keeps for the cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from rune.adapters.postgres.blob import PostgresBlob
from rune.adapters.postgres.database import Database
from rune.adapters.postgres.index import PostgresIndex
from rune.adapters.postgres.journal import PostgresJournal
from rune.adapters.postgres.library import PostgresLibrary
from rune.adapters.postgres.outbox import PostgresOutbox
from rune.adapters.postgres.retention import PostgresRetention
from rune.ports.blob import Blob


class Postgres:
    """The adapters over one database."""

    def __init__(self, database: Database, outside: Blob | None = None) -> None:
        self.database = database
        self.journal = PostgresJournal(database)
        self.blob = outside or PostgresBlob(database)
        self.library = PostgresLibrary(database)
        self.retention = PostgresRetention(database, self.journal, outside)
        self.index = PostgresIndex(database)
        self.outbox = PostgresOutbox(database)


@asynccontextmanager
async def postgres(
    dsn: str, *, outside: Blob | None = None, read_only: bool = False
) -> AsyncIterator[Postgres]:
    """The adapters while the block runs. `outside`: where blobs are, if not in the database."""
    database = Database(dsn, read_only=read_only)
    await database.open()
    opened = Postgres(database, outside)
    try:
        yield opened
    finally:
        await opened.outbox.close()
        await opened.journal.close()
