"""A wire that can be cut: passes bytes on to a server until told to keep its answers and hang up, or to fall silent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from tests.support.services.listening import listening


class Proxy:
    """Listens on a port of its own. After `cut()` the next answer is received, kept, and the line goes dead."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._cutting = False
        self._lines = 0
        self._dead_up_to = 0
        self.cuts = 0
        self.silent = 0
        self.port = 0

    def cut(self) -> None:
        """From now on the next answer of the server never arrives."""
        self._cutting = True

    def stall(self) -> None:
        """From now on no answer comes over the lines that are open; new ones are sound."""
        self._dead_up_to = self._lines

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._lines += 1
        line = self._lines
        upstream, downstream = await asyncio.open_connection("127.0.0.1", self._target)
        asking = asyncio.create_task(self._ask(reader, downstream))
        try:
            while data := await upstream.read(65536):
                if self._cutting:
                    self._cutting = False
                    self.cuts += 1
                    return
                if line <= self._dead_up_to:
                    self.silent += 1
                    continue
                writer.write(data)
                await writer.drain()
        finally:
            asking.cancel()
            with suppress(asyncio.CancelledError, OSError):
                await asking
            for each in (writer, downstream):
                each.close()
                with suppress(OSError):
                    await each.wait_closed()

    async def _ask(self, reader: asyncio.StreamReader, downstream: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            downstream.write(data)
            await downstream.drain()
        downstream.close()

    @asynccontextmanager
    async def running(self, port: int = 0) -> AsyncIterator[Proxy]:
        """While the block runs, at a port that is free or at this one."""
        async with listening(self._serve, port) as self.port:
            yield self
