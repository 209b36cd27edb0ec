"""A TCP proxy that can drop a response and close the connection, or stop forwarding responses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from tests.support.services.listening import listening


class Proxy:
    """Forwards a port to a server. After `cut()` the next response is dropped and its connection closed."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._cutting = False
        self._connections = 0
        self._stalled_up_to = 0
        self._flowing = asyncio.Event()
        self._flowing.set()
        self.cuts = 0
        self.silent = 0
        self.port = 0

    def cut(self) -> None:
        """Drop the next response and close its connection."""
        self._cutting = True

    def stall(self) -> None:
        """Stop forwarding responses on open connections; new connections work."""
        self._stalled_up_to = self._connections

    def hold(self) -> None:
        """Keep responses back until `release()`."""
        self._flowing.clear()

    def release(self) -> None:
        self._flowing.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections += 1
        connection = self._connections
        upstream, downstream = await asyncio.open_connection("127.0.0.1", self._target)
        forwarding = asyncio.create_task(self._forward(reader, downstream))
        try:
            while data := await upstream.read(65536):
                await self._flowing.wait()
                if self._cutting:
                    self._cutting = False
                    self.cuts += 1
                    return
                if connection <= self._stalled_up_to:
                    self.silent += 1
                    continue
                writer.write(data)
                await writer.drain()
        finally:
            forwarding.cancel()
            with suppress(asyncio.CancelledError, OSError):
                await forwarding
            for each in (writer, downstream):
                each.close()
                with suppress(OSError):
                    await each.wait_closed()

    async def _forward(self, reader: asyncio.StreamReader, downstream: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            downstream.write(data)
            await downstream.drain()
        downstream.close()

    @asynccontextmanager
    async def running(self, port: int = 0) -> AsyncIterator[Proxy]:
        """Run the proxy on the given or a free port while the block runs."""
        async with listening(self._serve, port) as self.port:
            yield self
