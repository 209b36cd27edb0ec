"""Migrations: the schema, step by step, each in one transaction with its mark.

Workers of the program before go on meanwhile: a step adds, and what it takes away was unused by the program before it.
A step that would have to wait long for them is given up and tried again, so that nobody queues behind it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

import asyncpg  # type: ignore[import-untyped]

from rune.adapters.postgres.database import (
    Connection,
    DatabaseRefusedError,
    Driver,
    map_error,
    migrations,
    place,
    query,
)
from rune.ports.journal import NewerFormatError

LOCK_TIMEOUT_S = 60.0
"""How long a step is tried while others use the tables it changes, in seconds."""

MIN_SERVER_VERSION = 140_000
_PAUSE = 0.2


async def migrate(dsn: str, steps: Sequence[tuple[str, str]] | None = None) -> list[str]:
    """Bring a database to the version of this program; answers the steps that were taken now. Any number of processes
    may do it at once. A database of a newer program is left alone."""
    wanted = migrations() if steps is None else steps
    try:
        connection = await asyncpg.connect(dsn)
        try:
            await _check_server(connection)
            await _first(connection)
            names = [await _step(connection, number, wanted) for number in range(1, len(wanted) + 1)]
        finally:
            await connection.close()
    except Driver as error:
        raise map_error(error, place(dsn)) from error
    return [name for name in names if name is not None]


async def _check_server(connection: Connection) -> None:
    """Refuse a server that will not do before anything is made there."""
    version, encoding = await connection.fetchrow(query("server"))
    if version < MIN_SERVER_VERSION:
        raise DatabaseRefusedError(
            f"PostgreSQL {version // 10_000} is too old: Rune needs {MIN_SERVER_VERSION // 10_000} or newer"
        )
    if encoding != "UTF8":
        raise DatabaseRefusedError(
            f"the database is encoded as {encoding}: Rune needs one that is encoded as UTF8"
        )


async def _first(connection: Connection) -> None:
    """The table of the steps themselves."""
    async with connection.transaction():
        await connection.execute(query("migration_lock"))
        await connection.execute(query("migration_table"))


async def _step(connection: Connection, number: int, steps: Sequence[tuple[str, str]]) -> str | None:
    name, text = steps[number - 1]
    gives_up = time.monotonic() + LOCK_TIMEOUT_S
    while True:
        try:
            # crash here: the step and its mark are both there, or neither
            async with connection.transaction():
                await connection.execute(query("migration_lock"))
                taken = await connection.fetchval(query("migration_last"))
                if taken > len(steps):
                    raise NewerFormatError(
                        f"the schema has version {taken}, this Rune knows up to {len(steps)}"
                    )
                if taken >= number:
                    return None
                await connection.execute(text)
                await connection.execute(query("migration_taken"), number, name)
                return name
        except asyncpg.LockNotAvailableError:
            if time.monotonic() > gives_up:
                raise
            await asyncio.sleep(_PAUSE)
