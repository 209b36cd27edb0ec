"""A wire to a server that can be cut: it then swallows everything, in both directions, until it is mended."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class Wire:
    """Passes bytes on, in a thread of its own."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._loop = asyncio.new_event_loop()
        self._whole = True
        self._ends: set[asyncio.StreamWriter] = set()
        self.port = 0

    def cut(self) -> None:
        """From now on nothing arrives, and nobody is told."""
        self._whole = False

    def mend(self) -> None:
        """What was cut is lost; new connections are sound."""
        self._loop.call_soon_threadsafe(self._mend)

    def _mend(self) -> None:
        self._whole = True
        for each in list(self._ends):
            each.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._ends.add(writer)
        try:
            with suppress(OSError):
                upstream, downstream = await asyncio.open_connection("127.0.0.1", self._target)
                self._ends.add(downstream)
                try:
                    await asyncio.gather(self._pass(reader, downstream), self._pass(upstream, writer))
                finally:
                    self._ends.discard(downstream)
                    downstream.transport.abort()
        finally:
            self._ends.discard(writer)
            writer.transport.abort()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            if self._whole:
                writer.write(data)
                await writer.drain()
        writer.transport.abort()

    def _run(self, ready: threading.Event) -> None:
        asyncio.set_event_loop(self._loop)

        async def open() -> asyncio.Server:
            return await asyncio.start_server(self._serve, "127.0.0.1", 0)

        server = self._loop.run_until_complete(open())
        self.port = server.sockets[0].getsockname()[1]
        ready.set()
        self._loop.run_forever()
        server.close()
        for each in list(self._ends):
            each.transport.abort()
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self._loop.close()


@contextmanager
def wire(target: int) -> Iterator[Wire]:
    """While the block runs."""
    made = Wire(target)
    ready = threading.Event()
    thread = threading.Thread(target=made._run, args=(ready,), daemon=True)
    thread.start()
    ready.wait()
    try:
        yield made
    finally:
        made._loop.call_soon_threadsafe(made._loop.stop)
        thread.join()
