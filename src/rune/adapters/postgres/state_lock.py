"""An advisory lock in the database for as long as a process uses the state in Redis, so that a process whose settings
name another, empty Redis starts no second state of the same executions beside it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from rune.adapters.postgres.database import Connection, Database, query
from rune.ports.journal import StoreUnavailableError

log = logging.getLogger("rune.startup")

CHECK_PERIOD_S = 5.0
"""How often it is checked that the session of the lock still exists."""

RETRY_DELAY_S = 0.5


class OtherStateError(StoreUnavailableError):
    """Redis has no state, and other processes use one elsewhere."""

    def __init__(self) -> None:
        super().__init__(
            "Redis is empty, and other processes use the state in another Redis: correct RUNE_STATE, or stop them if"
            " their Redis is lost; processes that use this one record it again within some seconds"
        )


async def check_state(database: Database, has_state: Callable[[], Awaitable[bool]]) -> None:
    """Raise OtherStateError if Redis has no state, and other processes use one."""
    if await has_state():
        return
    async with database.connection() as connection:
        if not await connection.fetchval(query("state_try")):
            raise OtherStateError
        await connection.fetch(query("state_release"))


@asynccontextmanager
async def using_state(
    database: Database, has_state: Callable[[], Awaitable[bool]], connect: Callable[[], Awaitable[None]]
) -> AsyncIterator[None]:
    """Connect to Redis, and share the lock while the block runs. Of processes that meet an empty Redis, the one that
    has the lock alone creates the state there; OtherStateError for the others until it has."""
    begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    keeping = asyncio.create_task(_keep(database, has_state, connect, begun))
    try:
        await asyncio.wait({keeping, begun}, return_when=asyncio.FIRST_COMPLETED)
        if keeping.done():
            keeping.result()
        yield
    finally:
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)


async def _keep(
    database: Database,
    has_state: Callable[[], Awaitable[bool]],
    connect: Callable[[], Awaitable[None]],
    begun: asyncio.Future[None],
) -> None:
    """Share the lock until cancelled, also after its session was lost."""
    while True:
        try:
            async with database.connection() as connection:
                try:
                    if not begun.done():
                        await _begin(connection, has_state, connect)
                        begun.set_result(None)
                    else:
                        await connection.fetch(query("state_share"))
                    while True:
                        await asyncio.sleep(CHECK_PERIOD_S)
                        await connection.execute("SELECT 1")
                finally:
                    connection.terminate()  # the pool would give the session with its locks to others
        except StoreUnavailableError as error:
            if not begun.done():
                raise
            log.debug("the lock of the state is taken again: %s", error.message)
        await asyncio.sleep(RETRY_DELAY_S)


async def _begin(
    connection: Connection, has_state: Callable[[], Awaitable[bool]], connect: Callable[[], Awaitable[None]]
) -> None:
    alone = await connection.fetchval(query("state_try"))
    if not alone and not await has_state():
        raise OtherStateError
    await connect()
    await connection.fetch(query("state_share"))
    if alone:
        await connection.fetch(query("state_release"))
