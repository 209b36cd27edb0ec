"""A TCP server in the event loop of a test. At its end all connections are closed, also those just accepted."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def listening(serve: Serve, port: int = 0, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """Serve on the given or a free port while the block runs; yield the port."""
    connections: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            await serve(reader, writer)
        writer.close()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Registered before the task runs: a task that is cancelled before its first step closes nothing.
        connections[asyncio.create_task(one(reader, writer))] = writer

    server = await asyncio.start_server(accept, "127.0.0.1", port, ssl=tls)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in connections:
            task.cancel()
        await asyncio.gather(*connections, return_exceptions=True)
        for writer in connections.values():
            with suppress(
                AttributeError
            ):  # Python 3.11.2: a TLS transport that was closed twice cannot be aborted
                writer.transport.abort()
        await asyncio.gather(*(each.wait_closed() for each in connections.values()), return_exceptions=True)


@contextmanager
def refusing_port() -> Iterator[int]:
    """Yield a port that refuses connections and that no other process can take while the block runs: it is bound and
    nothing listens. A port that was closed may be the next one that the kernel assigns to another server."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]
