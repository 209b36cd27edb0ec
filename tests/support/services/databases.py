"""Migrated databases, one per folder."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from rune.adapters.postgres.database import STATEMENT_TIMEOUT_S, Database
from rune.adapters.postgres.stores import PostgresStores
from rune.nodes.registry import full_registry
from rune.runtime.plan_cache import PlanCache
from rune.runtime.queries.reader import ExecutionReader
from tests.support.services.postgres import TEMPLATE, Server, database_of, server

_made: set[str] = set()


def ready() -> Server:
    """Return the server, which has a migrated template database."""
    return server()


def dsn_of(folder: Path) -> str:
    """Return the DSN of a folder's database, which is created on first use."""
    name = database_of(folder)
    if name not in _made:
        server().create(name, TEMPLATE)
        _made.add(name)
    return server().dsn(name)


def left_behind(folder: Path) -> Path:
    """Return a folder whose database is a copy of what is committed now, as after a crash."""
    copy = folder / "left"
    server().copy(database_of(folder), database_of(copy), TEMPLATE)
    _made.add(database_of(copy))
    return copy


@asynccontextmanager
async def patient(
    dsn: str, *, patience: float, longest: float = STATEMENT_TIMEOUT_S
) -> AsyncIterator[PostgresStores]:
    """Open the adapters with timeouts for an unavailable and for a slow server."""
    database = Database(dsn, retry_timeout=patience, statement_timeout=longest)
    await database.open()
    found = PostgresStores(database)
    try:
        yield found
    finally:
        await found.journal.close()


def reader_of(found: PostgresStores) -> ExecutionReader:
    """Return a reader of the database."""
    plans = PlanCache(found.journal, full_registry(()).catalogue)
    return ExecutionReader(found.index, found.journal, found.blob, plans, found.database, found.workflows)
