"""Schema migrations, each applied in one transaction together with its row in `rune_migration`.

Processes of the previous release keep running during a migration: a step only adds, and removes only what the previous
release no longer used. A step that cannot get its locks quickly is rolled back and retried, so that no other statement
queues behind it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

import asyncpg  # type: ignore[import-untyped]

from rune.adapters.postgres.database import (
    DRIVER_ERRORS,
    Connection,
    DatabaseRefusedError,
    map_error,
    migrations,
    query,
    redacted_url,
)
from rune.adapters.rows import WAITING, stored_terms
from rune.ports.journal import NewerFormatError

LOCK_TIMEOUT_S = 60.0
"""How long a step is retried while other sessions lock its tables."""

MIN_SERVER_VERSION = 140_000
SEARCH = "0014"
"""The step after which the existing executions get the terms that they are found by."""

_RETRY_DELAY_S = 0.2


async def migrate(dsn: str, steps: Sequence[tuple[str, str]] | None = None) -> list[str]:
    """Migrate a database to the version of this program and return the names of the applied steps. Concurrent
    migrations are safe. A database of a newer release is not changed."""
    wanted = migrations() if steps is None else steps
    try:
        connection = await asyncpg.connect(dsn)
        try:
            await _check_server(connection)
            await _create_migration_table(connection)
            names = [await _step(connection, number, wanted) for number in range(1, len(wanted) + 1)]
        finally:
            await connection.close()
    except DRIVER_ERRORS as error:
        raise map_error(error, redacted_url(dsn)) from error
    return [name for name in names if name is not None]


async def _add_terms(connection: Connection) -> None:
    """Add the terms that the executions of an older version are found by."""
    last = 0
    while rows := await connection.fetch(query("executions_to_index"), last):
        last = rows[-1]["n"]
        terms = [(term, row["n"]) for row in rows for term in stored_terms(row["accepted"], row["ending"])]
        await connection.execute(
            query("terms_insert"), [term for term, _ in terms], [number for _, number in terms]
        )
    await connection.execute(query("waiting_terms_insert"), WAITING)


async def _check_server(connection: Connection) -> None:
    """Reject an unsuitable server before anything is created on it."""
    version, encoding = await connection.fetchrow(query("server_version"))
    if version < MIN_SERVER_VERSION:
        raise DatabaseRefusedError(
            f"PostgreSQL {version // 10_000} is too old: Rune needs {MIN_SERVER_VERSION // 10_000} or newer"
        )
    if encoding != "UTF8":
        raise DatabaseRefusedError(
            f"the database is encoded as {encoding}: Rune needs one that is encoded as UTF8"
        )


async def _create_migration_table(connection: Connection) -> None:
    async with connection.transaction():
        await connection.execute(query("migration_lock"))
        await connection.execute(query("migration_table_create"))


async def _step(connection: Connection, number: int, steps: Sequence[tuple[str, str]]) -> str | None:
    name, text = steps[number - 1]
    deadline = time.monotonic() + LOCK_TIMEOUT_S
    while True:
        try:
            # crash here: the step and its row are both committed, or neither
            async with connection.transaction():
                await connection.execute(query("migration_lock"))
                version = await connection.fetchval(query("migration_version"))
                if version > len(steps):
                    raise NewerFormatError(
                        f"the schema has version {version}, this Rune knows up to {len(steps)}"
                    )
                if version >= number:
                    return None
                await connection.execute(text)
                if name.startswith(SEARCH):
                    await _add_terms(connection)
                await connection.execute(query("migration_record"), number, name)
                return name
        except asyncpg.LockNotAvailableError:
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(_RETRY_DELAY_S)
