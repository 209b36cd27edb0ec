"""The queue in memory. What is in it is also in the state, so nothing is lost with it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence

from rune.core.token import Token
from rune.ports.queue import Delivery

HIGH, LOW = 7, 3


class EmbeddedQueue:
    """Three lanes by priority; the lower ones get a turn now and then, so that nothing starves."""

    def __init__(self) -> None:
        self._lanes: tuple[deque[Delivery], ...] = (deque(), deque(), deque())
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._turn = 0
        self._calling = False

    def __len__(self) -> int:
        return sum(map(len, self._lanes))

    async def send(self, execution: str, tokens: Sequence[Token], priority: int = 5) -> None:
        lane = self._lanes[0 if priority >= HIGH else 2 if priority <= LOW else 1]
        for token in tokens:
            lane.append(Delivery(execution, token))
        self._call()

    def _call(self) -> None:
        """Wake as many as there is work for, once the loop has come around: whoever sent it may take it first."""
        if not self._calling and self._waiting:
            self._calling = True
            asyncio.get_running_loop().call_soon(self._wake)

    def _wake(self) -> None:
        self._calling = False
        count = len(self)
        while count and self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                count -= 1

    async def receive(self) -> Delivery:
        while True:
            found = self._next()
            if found is not None:
                return found
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                if waiter.done() and not waiter.cancelled():
                    self._call()
                raise

    def _next(self) -> Delivery | None:
        self._turn += 1
        order = (2, 1, 0) if self._turn % 16 == 0 else (1, 0, 2) if self._turn % 4 == 0 else (0, 1, 2)
        for lane in order:
            if self._lanes[lane]:
                return self._lanes[lane].popleft()
        return None

    async def ack(self, delivery: Delivery) -> None:
        """The state has already moved on."""

    async def give_back(self, delivery: Delivery, delay: float = 0.0) -> None:
        if delay:
            asyncio.get_running_loop().call_later(delay, self._return, delivery)
        else:
            self._return(delivery)

    async def close(self) -> None:
        """It goes with the process."""

    def _return(self, delivery: Delivery) -> None:
        self._lanes[1].append(delivery)
        self._call()
