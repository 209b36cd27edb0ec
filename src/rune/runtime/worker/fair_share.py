"""How much of a worker the items of fan-outs may take. They fill every slot; each turn of the loop, and each commit,
then lasts as long as all of them together, and whoever comes with a single token waits for several such turns. So,
while others are there and the turns are long, fewer items are under way at once. Alone they have every slot, and so do
items that only wait for somebody else, because they make no long turns."""

from __future__ import annotations

import asyncio
from collections import Counter, deque

LONG_TURN = 0.0005  # s
LEAST = 4
PULSE = 0.005  # s between two looks
BESIDE = 5.0  # s for which somebody who was there counts as being there


class FairShare:
    """How many items may be under way."""

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self.most = slots
        self._items = 0
        self._crowds: Counter[str] = Counter()
        self._others_until = 0.0
        self._waiting: deque[asyncio.Future[None]] = deque()

    def note_other(self, execution: str, now: float) -> None:
        """A token that is no item has come; it counts where the items are another execution's."""
        if self._crowds and execution not in self._crowds:
            self._others_until = now + BESIDE

    async def acquire(self, execution: str) -> None:
        """Wait until one more item may be under way; it is, then."""
        self._crowds[execution] += 1
        if self._items < self.most:
            self._items += 1
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self.release(execution)
            else:
                self._forget(execution)
            raise

    def release(self, execution: str) -> None:
        """One item is under way no more."""
        self._items -= 1
        self._forget(execution)
        self._call()

    def _forget(self, execution: str) -> None:
        self._crowds[execution] -= 1
        if not self._crowds[execution]:
            del self._crowds[execution]

    def adjust(self, turn: float, now: float) -> None:
        """How long the loop took to come around."""
        if now >= self._others_until:
            self.most = self._slots
        elif turn > LONG_TURN:
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
                now = loop.time()
                self.adjust(now - began - PULSE, now)
