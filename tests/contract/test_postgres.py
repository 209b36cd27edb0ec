"""The adapters of PostgreSQL keep the contracts, each test in a database of its own."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from rune.adapters.keysource import KeySource
from rune.adapters.postgres.blob import PostgresBlob
from rune.adapters.postgres.journal import PostgresJournal
from rune.adapters.postgres.library import PostgresLibrary
from rune.adapters.postgres.migrating import migrate
from rune.adapters.postgres.open import Postgres, postgres
from rune.adapters.postgres.secret import PostgresSecret
from rune.nodes.discovery import full_registry
from rune.ports.retention import Rule
from rune.runtime.planbook import Planbook
from rune.runtime.reader import Reader
from rune.testing.contracts.blob import BlobContract
from rune.testing.contracts.journal import JournalContract
from rune.testing.contracts.library import LibraryContract
from rune.testing.contracts.retention import ALL, NOW, Kept, RetentionContract
from rune.testing.contracts.scenario import scenario
from rune.testing.contracts.secret import SecretContract
from tests.services.postgres import database_of, server

TEMPLATE = "migrated"


@functools.cache
def _template() -> str:
    """A database with the schema and nothing in it: copying it is quicker than migrating each time."""
    asyncio.run(migrate(server().create(TEMPLATE)))
    return TEMPLATE


@functools.cache
def dsn_of(folder: Path) -> str:
    """The database of a folder, made when it is first asked for."""
    return server().create(database_of(folder), TEMPLATE)


@asynccontextmanager
async def opened(folder: Path, *, read_only: bool = False) -> AsyncIterator[Postgres]:
    async with postgres(dsn_of(folder), read_only=read_only) as found:
        yield found


def left_behind(folder: Path) -> Path:
    """What another process would find if this one died now."""
    copy = folder / "left"
    server().copy(database_of(folder), database_of(copy), TEMPLATE)
    dsn_of.cache_clear()
    return copy
