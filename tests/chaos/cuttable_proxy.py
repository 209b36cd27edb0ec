"""A TCP proxy that can be cut: it then drops all data in both directions until it is restored. It can also hold what
clients send or what the server answers, and pass it on later."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class CuttableProxy:
    """Forwards connections in its own thread."""

    def __init__(self, target: int | str) -> None:
        """`target` is a port or the path of a Unix socket."""
        self._target = target
        self._loop = asyncio.new_event_loop()
        self._forwarding = True
        self._held: dict[bool, list[tuple[asyncio.StreamWriter, bytes]] | None] = {True: None, False: None}
        """What clients send (True) and what the server answers (False) while it is held."""
        self._released = asyncio.Event()
        self._writers: set[asyncio.StreamWriter] = set()
        self.port = 0

    def cut(self) -> None:
        """Drop all data from now on, without closing connections."""
        self._forwarding = False

    def hold(self, *, commands: bool) -> None:
        """Hold what clients send, or else what the server answers, from now on."""
        self._released.clear()
        self._held[commands] = []

    def holds(self, *, commands: bool) -> bool:
        """Return whether anything is held in a direction."""
        return bool(self._held[commands])

    def release(self) -> None:
        """Pass on what is held, in both directions."""
        self._loop.call_soon_threadsafe(self._release)

    def _release(self) -> None:
        for direction, held in self._held.items():
            self._held[direction] = None
            for writer, data in held or ():
                writer.write(data)
        self._released.set()

    def restore(self) -> None:
        """Close the cut connections; new ones work."""
        self._loop.call_soon_threadsafe(self._restore)

    def _restore(self) -> None:
        self._forwarding = True
        for each in list(self._writers):
            each.transport.abort()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if isinstance(self._target, str):
            return await asyncio.open_unix_connection(self._target)
        return await asyncio.open_connection("127.0.0.1", self._target)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            with suppress(OSError):
                upstream, downstream = await self._connect()
                self._writers.add(downstream)
                try:
                    await asyncio.gather(
                        self._forward(reader, downstream, commands=True),
                        self._forward(upstream, writer, commands=False),
                    )
                finally:
                    self._writers.discard(downstream)
                    downstream.transport.abort()
        finally:
            self._writers.discard(writer)
            writer.transport.abort()

    async def _forward(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, commands: bool
    ) -> None:
        while data := await reader.read(65536):
            held = self._held[commands]
            if held is not None:
                held.append((writer, data))
            elif self._forwarding:
                writer.write(data)
                await writer.drain()
        # What is held is passed on although its sender has gone, as a network does that is slow.
        if self._held[commands]:
            await self._released.wait()
        if writer.transport.get_write_buffer_size():
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
        for each in list(self._writers):
            each.transport.abort()
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self._loop.close()


@contextmanager
def running_proxy(target: int | str) -> Iterator[CuttableProxy]:
    """Run a proxy while the block runs."""
    made = CuttableProxy(target)
    ready = threading.Event()
    thread = threading.Thread(target=made._run, args=(ready,), daemon=True)
    thread.start()
    ready.wait()
    try:
        yield made
    finally:
        made._loop.call_soon_threadsafe(made._loop.stop)
        thread.join()
