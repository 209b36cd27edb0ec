"""The door of the owner: a Unix socket beside the file, behind which it does what others ask."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from rune.errors import RuneError
from rune.wire.request import (
    HEADER,
    BadFrame,
    Refusal,
    Reply,
    Verbs,
    body_size,
    frame,
    read_request,
    refusal_of,
)

log = logging.getLogger("rune.door")

LONGEST = 100  # bytes of a socket's address; the system takes 107
LARGE = 1024 * 1024  # one frame above this size is received at a time: many at once must not fill the memory
MOST = 500  # connections
STALLED = 30.0  # s that the rest of a frame may take, or the reading of an answer
SETTLED = 4  # turns of the loop until who stood before the door is in
FAREWELL = 5.0  # s that requests get when the owner leaves


def socket_of(database: Path) -> Path:
    """Where the owner of a file listens."""
    return database.with_suffix(".sock")


@contextmanager
def address(path: Path) -> Iterator[str]:
    """A name of the socket that is short enough for the system, however deep its folder is."""
    if len(os.fsencode(path)) <= LONGEST:
        yield str(path)
        return
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


async def receive(reader: asyncio.StreamReader, large: asyncio.Lock | None = None) -> bytes | None:
    """The body of the next frame; None where the other side has said all. It may begin late, but not dawdle."""
    first = await reader.read(1)
    if not first:
        return None
    async with asyncio.timeout(STALLED):
        size = body_size(first + await reader.readexactly(HEADER.size - 1))
        if size <= LARGE or large is None:
            return await reader.readexactly(size)
    async with large, asyncio.timeout(STALLED):
        return await reader.readexactly(size)


class Door:
    """Open while the block runs. Only the owner of the file opens one, so what is in its place is left over."""

    def __init__(self, path: Path, verbs: Verbs, desk: object) -> None:
        self._path = path
        self._verbs = verbs
        self._desk = desk
        self._server: asyncio.Server | None = None
        self._named = ExitStack()
        self._talks: set[asyncio.Task[Any]] = set()
        self._large = asyncio.Lock()
        self._shutting = False
        self._busy = 0
        self._quiet = asyncio.Event()

    async def __aenter__(self) -> Door:
        try:
            # The name stays good for as long as the socket has it: newer Pythons look it up again at the end.
            name = self._named.enter_context(address(self._path))
            self._server = await asyncio.start_unix_server(self._talk, sock=self._listening(name))
        except OSError as error:
            # Some file systems know no sockets. Executions run all the same; others have to wait.
            log.warning("no other process can reach this one: %s: %s", self._path, error.strerror or error)
        return self

    def _listening(self, name: str) -> socket.socket:
        self._path.unlink(missing_ok=True)
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            made.bind(name)
            self._path.chmod(0o600)  # nobody can connect before it listens
            made.listen(MOST)
        except OSError:
            made.close()
            raise
        made.setblocking(False)
        return made

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Whoever has not been answered by the end asks the next owner."""
        with self._named:
            if self._server is not None:
                await self._shut(self._server)

    async def _shut(self, server: asyncio.Server) -> None:
        with suppress(OSError):
            self._path.unlink(missing_ok=True)
        self._shutting = True
        for _ in range(SETTLED):  # nobody new finds the door; the server must not close on who is half inside
            await asyncio.sleep(0)
        server.close()
        if self._busy:
            self._quiet.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(FAREWELL):
                    await self._quiet.wait()
        talks = list(self._talks)
        for each in talks:
            each.cancel()
        await asyncio.gather(*talks, return_exceptions=True)

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        me = asyncio.current_task()
        assert me is not None
        if self._shutting:  # let in just before the door was closed, and too late to be asked what it wants
            writer.close()
            return
        self._talks.add(me)
        try:
            if len(self._talks) > MOST:
                crowded = Refusal("StoreAway", "STORE_AWAY", f"more than {MOST} processes ask at once")
                await _send(writer, crowded)
                return
            while (body := await receive(reader, self._large)) is not None:
                await self._serve(body, writer)
        except BadFrame as bad:
            with suppress(OSError, TimeoutError):
                await _send(writer, refusal_of(bad))
        except (OSError, EOFError, TimeoutError):
            pass  # who went, or dawdled, is not waited for
        except asyncio.CancelledError:
            pass  # the owner leaves
        finally:
            self._talks.discard(me)
            writer.close()

    async def _serve(self, body: bytes, writer: asyncio.StreamWriter) -> None:
        self._busy += 1
        try:
            await _send(writer, await self._reply(body))
        finally:
            self._busy -= 1
            if self._busy == 0:
                self._quiet.set()

    async def _reply(self, body: bytes) -> Reply:
        """Whatever happens is an answer: what one client sends must not end the owner."""
        try:
            request = read_request(body)
            verb = self._verbs[request.verb]
            return verb.answer(await getattr(self._desk, verb.name)(**verb.arguments(request)))
        except RuneError as error:
            return refusal_of(error)
        except Exception as error:
            log.exception("a request failed")
            return Refusal("RuneError", "INTERNAL", f"the owner stumbled: {type(error).__name__}: {error}")


async def _send(writer: asyncio.StreamWriter, reply: Reply) -> None:
    try:
        data = frame(reply)
    except BadFrame as too_large:
        data = frame(refusal_of(too_large))
    writer.write(data)
    async with asyncio.timeout(STALLED):
        await writer.drain()
