"""Databases with the schema in them, one for each folder that asks."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from rune.adapters.postgres.database import STATEMENT_TIMEOUT_S, Database
from rune.adapters.postgres.migrations import migrate
from rune.adapters.postgres.stores import PostgresStores
from rune.nodes.registry import full_registry
from rune.runtime.plan_cache import PlanCache
from rune.runtime.queries.reader import ExecutionReader
from tests.support.services.postgres import Server, database_of, server

TEMPLATE = "migrated"
_made: set[str] = set()


@functools.cache
def ready() -> Server:
    """The server, with a database to copy: that is quicker than to migrate each time. Not from inside of a loop."""
    found = server()
    asyncio.run(migrate(found.create(TEMPLATE)))
    return found


def dsn_of(folder: Path) -> str:
    """The database of a folder, made when it is first asked for."""
    name = database_of(folder)
    if name not in _made:
        server().create(name, TEMPLATE)
        _made.add(name)
    return server().dsn(name)


def left_behind(folder: Path) -> Path:
    """A folder whose database holds what another process would find if this one died now."""
    copy = folder / "left"
    server().copy(database_of(folder), database_of(copy), TEMPLATE)
    _made.add(database_of(copy))
    return copy


@asynccontextmanager
async def patient(
    dsn: str, *, patience: float, longest: float = STATEMENT_TIMEOUT_S
) -> AsyncIterator[PostgresStores]:
    """The adapters of somebody who waits so long for a server that is away, or that takes its time."""
    database = Database(dsn, retry_timeout=patience, statement_timeout=longest)
    await database.open()
    found = PostgresStores(database)
    try:
        yield found
    finally:
        await found.journal.close()


def reader_of(found: PostgresStores) -> ExecutionReader:
    """Somebody who looks at what the database holds."""
    plans = PlanCache(found.journal, full_registry(()).catalogue)
    return ExecutionReader(found.index, found.journal, found.blob, plans, found.database, found.workflows)
