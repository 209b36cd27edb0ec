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
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def wait(self) -> None:
        """Until there is room, but not long."""
        if self._size() < COMFORTABLE:
            return
        loop = asyncio.get_running_loop()
        leaving = loop.create_future()
        self._waiting.append(leaving)
        impatience = loop.call_later(PATIENCE, _let_in, leaving)
        try:
            await leaving
        finally:
            impatience.cancel()

    def left(self) -> None:
        """Somebody has gone: the next may come in."""
        while self._waiting and self._size() < COMFORTABLE:
            if _let_in(self._waiting.popleft()):
                return


def _let_in(waiting: asyncio.Future[None]) -> bool:
    if waiting.done():
        return False
    waiting.set_result(None)
    return True
