"""Callers: processes that do not own the file and ask whoever does."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from rune.adapters.embedded.door import address, receive
from rune.ports.journal import Ended, StoreAway
from rune.ports.owner import MARKED, InUse, Lost, NoOwner
from rune.wire.request import BadFrame, Verb, Verbs, frame, read_reply

REACHED = 10.0  # s until somebody must be found who answers
ANSWERED = 60.0  # s that an answer may take
SLOW = {"collect": 3600.0}  # s, of verbs that go through the whole file
LEAST_PAUSE, MOST_PAUSE = 0.005, 0.05  # s between two tries


async def pause() -> None:
    """Before the next try; not the same for everybody, or all would try at once again."""
    await asyncio.sleep(random.uniform(LEAST_PAUSE, MOST_PAUSE))


class Line:
    """A connection to the owner, which may go at any moment."""

    def __init__(self, verbs: Verbs, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._verbs = verbs
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, path: Path, verbs: Verbs) -> Line:
        """Find the owner, if it listens."""
        try:
            with address(path) as name:
                reader, writer = await asyncio.open_unix_connection(name)
        except OSError as error:
            raise NoOwner(f"nobody listens at {path}: {(error.strerror or str(error)).lower()}") from error
        return cls(verbs, reader, writer)

    async def ask(self, verb: Verb, arguments: dict[str, Any]) -> Any:
        """Have the owner do something."""
        data = frame(verb.request(arguments))
        patience = SLOW.get(verb.name, ANSWERED)
        try:
            self._writer.write(data)
            async with asyncio.timeout(patience):
                await self._writer.drain()
                body = await receive(self._reader)
        except TimeoutError:
            raise StoreAway(
                f"the process that owns the file has not answered within {patience:.0f} s"
            ) from None
        except (OSError, EOFError) as error:
            raise Lost("the owner of the file went before it answered") from error
        if body is None:
            raise Lost("the owner of the file went before it answered")
        return verb.value(read_reply(body))

    async def gone(self) -> None:
        """Until the owner goes. Nothing may be asked meanwhile."""
        with suppress(OSError):
            await self._reader.read(1)

    def close(self) -> None:
        self._writer.close()

    def __getattr__(self, verb: str) -> Callable[..., Awaitable[Any]]:
        if verb not in self._verbs:
            raise AttributeError(verb)
        known = self._verbs[verb]

        async def call(*values: Any, **named: Any) -> Any:
            return await self.ask(known, known.named(*values, **named))

        return call


class Caller:
    """The verbs, wherever they are done: by the owner, or here where nobody is and this process becomes it.

    Each call tries one and the other in turn, for the owner may be just starting or just leaving. What may have been
    done when a connection broke is asked for again under the same mark, so it is done once.
    """

    def __init__(
        self,
        path: Path,
        verbs: Verbs,
        own: Callable[[], AbstractAsyncContextManager[Any]],
        make_up: Callable[[], str],
    ) -> None:
        self._path = path
        self._verbs = verbs
        self._own = own
        self._make_up = make_up
        self._stack = AsyncExitStack()
        self._line: Line | None = None
        self._desk: Any = None

    async def __aenter__(self) -> Caller:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._hang_up()
        await self._stack.aclose()

    @property
    def owns(self) -> bool:
        """Whether this process became the owner."""
        return self._desk is not None

    def __getattr__(self, verb: str) -> Callable[..., Awaitable[Any]]:
        if verb not in self._verbs:
            raise AttributeError(verb)

        async def call(*values: Any, **named: Any) -> Any:
            return await self._call(verb, self._verbs[verb].named(*values, **named))

        return call

    async def _call(self, name: str, arguments: dict[str, Any]) -> Any:
        verb = self._verbs[name]
        mark = MARKED.get(name)
        if mark is not None and arguments.get(mark) is None and verb.takes(mark):
            arguments[mark] = self._make_up()
        deadline = asyncio.get_running_loop().time() + REACHED
        lost = False
        while True:
            try:
                if self._desk is not None:
                    return await getattr(self._desk, name)(**arguments)
                return await self._ask(verb, arguments)
            except NoOwner as nobody:
                missing: StoreAway = nobody
            except Lost as gone:
                missing, lost = gone, True
                deadline = asyncio.get_running_loop().time() + REACHED
            except Ended as ended:
                if lost and name == "cancel":
                    return ended.end.status  # most likely by the one who could not say so any more
                raise
            if await self._become_owner():
                continue
            if asyncio.get_running_loop().time() > deadline:
                raise StoreAway(f"a process owns the file and does not answer: {missing.message}")
            await pause()

    async def _ask(self, verb: Verb, arguments: dict[str, Any]) -> Any:
        try:
            if self._line is None:
                self._line = await Line.open(self._path, self._verbs)
            return await self._line.ask(verb, arguments)
        except (StoreAway, BadFrame):
            self._hang_up()
            raise

    async def _become_owner(self) -> bool:
        try:
            self._desk = await self._stack.enter_async_context(self._own())
        except InUse:
            return False
        return True

    def _hang_up(self) -> None:
        if self._line is not None:
            self._line.close()
            self._line = None
