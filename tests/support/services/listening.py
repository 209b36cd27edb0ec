"""A server of bytes in the loop of a test. Who is connected when it ends is hung up on, also who called just now."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def listening(serve: Serve, port: int = 0, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """While the block runs, at a port that is free or at this one; yields it."""
    lines: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            await serve(reader, writer)
        writer.close()

    def called(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Known before anything of it runs: a task that is cancelled before its first step closes nothing.
        lines[asyncio.create_task(one(reader, writer))] = writer

    server = await asyncio.start_server(called, "127.0.0.1", port, ssl=tls)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in lines:
            task.cancel()
        await asyncio.gather(*lines, return_exceptions=True)
        for writer in lines.values():
            writer.transport.abort()
        await asyncio.gather(*(each.wait_closed() for each in lines.values()), return_exceptions=True)
