"""How much of a worker the items of fan-outs may take. They fill every slot; each turn of the loop, and each commit,
then lasts as long as all of them together, and whoever comes with a single token waits for several such turns. So,
while the turns are long, fewer items are under way at once. Items that only wait for somebody else make no long turns,
and keep every slot."""

from __future__ import annotations

import asyncio
from collections import deque

LONG_TURN = 0.004  # s
LEAST = 16
PULSE = 0.005  # s between two looks


class Share:
    """How many items may be under way."""

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self.most = slots
        self._items = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def enter(self) -> None:
        """Wait until one more item may be under way; it is, then."""
        if self._items >= self.most:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                if waiter.done() and not waiter.cancelled():
                    self.leave()
                raise
        else:
            self._items += 1

    def leave(self) -> None:
        """One item is under way no more."""
        self._items -= 1
        self._call()

    def measured(self, turn: float) -> None:
        """How long the loop took to come around."""
        if turn > LONG_TURN:
            self.most = max(LEAST, min(self.most, self._items) * 3 // 4)
        else:
            self.most = min(self._slots, self.most + 1 + self.most // 8)
        self._call()

    def _call(self) -> None:
        while self._items < self.most and self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                self._items += 1
                waiter.set_result(None)

    async def run(self) -> None:
        """Until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            await asyncio.sleep(PULSE)
            if self._items:
                self.measured(loop.time() - began - PULSE)
