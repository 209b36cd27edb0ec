"""The crowd before the door: starts that wait a moment for executions in memory to leave."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

COMFORTABLE = 1_000  # above it, starts wait a moment: reading an execution back later costs more
PATIENCE = 0.2  # s


class Crowd:
    """`size` tells how many executions are in memory."""

    def __init__(self, size: Callable[[], int]) -> None:
        self._size = size
        self._waiting: deque[tuple[asyncio.Future[None], float]] = deque()
        self._watched = False

    async def wait(self) -> None:
        """Until there is room, but not long."""
        if self._size() < COMFORTABLE:
            return
        loop = asyncio.get_running_loop()
        leaving = loop.create_future()
        self._waiting.append((leaving, loop.time() + PATIENCE))
        if not self._watched:
            self._watched = True
            loop.call_later(PATIENCE, self._watch, loop)
        await leaving

    def _watch(self, loop: asyncio.AbstractEventLoop) -> None:
        """Let in who has waited long enough. One timer does for all: who came first loses patience first."""
        now = loop.time()
        while self._waiting and (self._waiting[0][0].done() or self._waiting[0][1] <= now):
            _let_in(self._waiting.popleft()[0])
        self._watched = bool(self._waiting)
        if self._watched:
            loop.call_at(self._waiting[0][1], self._watch, loop)

    def left(self) -> None:
        """Somebody has gone: the next may come in."""
        while self._waiting and self._size() < COMFORTABLE:
            if _let_in(self._waiting.popleft()[0]):
                return


def _let_in(waiting: asyncio.Future[None]) -> bool:
    if waiting.done():
        return False
    waiting.set_result(None)
    return True
