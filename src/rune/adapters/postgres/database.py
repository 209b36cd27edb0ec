"""The database: a pool of connections that recovers by itself, and one place where errors become ours."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeAlias
from urllib.parse import urlsplit

import asyncpg  # type: ignore[import-untyped]

from rune.adapters.postgres.failing import PASSING, Driver, is_lost, told
from rune.adapters.postgres.sql import migrations, query
from rune.ports.journal import NewerFormat, StoreAway

Row: TypeAlias = Any
Connection: TypeAlias = Any
PATIENCE = 2.0
"""How long a statement that may be sent twice is sent again before the store counts as away, in seconds."""

LONGEST = 30.0
"""How long the server may take for one statement, in seconds."""

_FIRST_PAUSE, _LAST_PAUSE = 0.02, 0.4


class Database:
    """Hands out connections. Nothing is connected before it is needed, and a connection that is lost is replaced."""

    def __init__(
        self,
        dsn: str,
        *,
        size: int = 8,
        read_only: bool = False,
        patience: float = PATIENCE,
        longest: float = LONGEST,
    ) -> None:
        self.where = place(dsn)
        self.patience = patience
        self._dsn = dsn
        self._size = size
        self._read_only = read_only
        self._longest = longest
        self._pool: Any = None

    async def open(self) -> None:
        """Begin. Refused where the schema is not the one that this program knows."""
        settings = {"application_name": "rune", "jit": "off"}
        if self._read_only:
            settings["default_transaction_read_only"] = "on"
        self._pool = await asyncpg.create_pool(
            self._dsn,
            min_size=0,
            max_size=self._size,
            command_timeout=self._longest,
            timeout=self._longest,
            server_settings=settings,
            init=_prepare,
            reset=_leave,
        )
        try:
            await self._check()
        except BaseException:
            await self.close()
            raise

    async def _check(self) -> None:
        known = len(migrations())
        version = 0
        (found,) = await self.fetch(query("migration_known"))
        if found["known"]:
            ((version,),) = await self.fetch(query("migration_last"))
        if version > known:
            raise NewerFormat(f"{self.where} has schema version {version}, this Rune knows up to {known}")
        if version < known:
            raise StoreAway(
                f"{self.where} has schema version {version}, this Rune needs {known}: migrate it first",
                code="NEEDS_MIGRATION",
            )

    async def fetch(self, statement: str, *values: Any, again: bool = True) -> Sequence[Row]:
        """The rows of one statement, which is one transaction: durable when this returns.

        A connection that is lost leaves open whether it was done. `again` says that it does no harm twice: it is sent
        once more, and its second answer tells.
        """
        gives_up = time.monotonic() + (self.patience if again else 0.0)
        pause = 0.0
        while True:
            try:
                return await self._asked(statement, values)
            except Driver as error:
                passing = again and (is_lost(error) or isinstance(error, PASSING))
                if not passing or self._forbidden(error) or time.monotonic() + pause > gives_up:
                    raise told(error, self.where) from error
                await asyncio.sleep(pause)
                pause = min(_LAST_PAUSE, pause * 2 or _FIRST_PAUSE)

    async def _asked(self, statement: str, values: Sequence[Any]) -> Sequence[Row]:
        async with self._pool.acquire() as connection:
            try:
                rows: Sequence[Row] = await connection.fetch(statement, *values)
            except Driver as error:
                if is_lost(error):
                    connection.terminate()  # it may still be open, to a server that is none of ours any more
                raise
        return rows

    def _forbidden(self, error: BaseException) -> bool:
        """Whether we ourselves said that nothing is to be written."""
        return self._read_only and isinstance(error, asyncpg.ReadOnlySQLTransactionError)

    async def row(self, statement: str, *values: Any, again: bool = True) -> Row | None:
        """The first row, or None."""
        rows = await self.fetch(statement, *values, again=again)
        return rows[0] if rows else None

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        """A connection inside of a transaction, which is durable when the block is left."""
        try:
            async with self._pool.acquire() as connection, connection.transaction():
                yield connection
        except Driver as error:
            raise told(error, self.where) from error

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """A connection outside of any transaction."""
        try:
            async with self._pool.acquire() as connection:
                yield connection
        except Driver as error:
            raise told(error, self.where) from error

    async def close(self) -> None:
        """Let go. Whoever has a statement under way is waited for."""
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.close()


async def _prepare(connection: Connection) -> None:
    """What was acknowledged has to be on disk, whatever the defaults of the server say."""
    await connection.execute(query("durable"))


async def _leave(connection: Connection) -> None:
    """Connections are given back as they were taken: resetting each would cost a round trip."""


def place(dsn: str) -> str:
    """Where a database is, without what must not be shown."""
    parts = urlsplit(dsn)
    host = parts.hostname or ""
    port = f":{parts.port}" if parts.port else ""
    return f"postgresql://{host}{port}{parts.path}"
