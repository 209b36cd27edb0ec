"""The watches: each execution that is followed, once, however many follow it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from rune.master.live.pulse import Pulse
from rune.master.live.watch import Tale, Watch
from rune.master.problems import ApiError
from rune.runtime.engine import Engine
from rune.runtime.reader import Reader

MOST_CLIENTS = 5_000
MOST_BACKLOGS = 4


class Watches:
    """Opened when the first one comes, dropped when the last one goes."""

    def __init__(self, engine: Engine, reader: Reader, pulse: Pulse) -> None:
        self._backend = engine.backend
        self._reader = reader
        self._pulse = pulse
        self._open: dict[str, tuple[Watch, int]] = {}
        self._clients = 0
        self.backlogs = asyncio.Semaphore(MOST_BACKLOGS)

    @property
    def closed(self) -> bool:
        """Whether everybody is to go."""
        return self._pulse.closed

    @asynccontextmanager
    async def watch(self, execution: str) -> AsyncIterator[Watch]:
        """Follow an execution while the block runs."""
        if self._clients >= MOST_CLIENTS:
            raise ApiError(f"{MOST_CLIENTS:,} are watching already", code="TOO_MANY_WATCH")
        self._clients += 1
        self._pulse.crowd = self._clients
        try:
            watch = await self._enter(execution)
            try:
                await watch.look()
                yield watch
            finally:
                self._leave(watch)
        finally:
            self._clients -= 1
            self._pulse.crowd = self._clients

    async def _enter(self, execution: str) -> Watch:
        if execution not in self._open:
            accepted = await self._reader.accepted(execution)
            plan = await self._reader.plan(execution)
            tale = Tale(accepted, plan, self._backend.journal, self._backend.blob, [])
            if execution not in self._open:
                made = Watch(tale, self._reader)
                self._open[execution] = (made, 0)
                self._pulse.join(made, made.look, made.wake)
        watch, count = self._open[execution]
        self._open[execution] = (watch, count + 1)
        return watch

    def _leave(self, watch: Watch) -> None:
        _, count = self._open[watch.execution]
        if count > 1:
            self._open[watch.execution] = (watch, count - 1)
        else:
            del self._open[watch.execution]
            self._pulse.leave(watch)

    async def until_end(self, execution: str, seconds: float) -> bool:
        """Until an execution has ended, or so long."""
        news = asyncio.Event()
        async with self.watch(execution) as watch:
            watch.waiting.add(news)
            try:
                async with asyncio.timeout(seconds):
                    while not watch.ended and not self.closed:
                        news.clear()
                        await news.wait()
            except TimeoutError:
                pass
            finally:
                watch.waiting.discard(news)
            return watch.ended
