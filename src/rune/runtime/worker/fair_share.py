"""The share of the slots that items of fan-outs may occupy.

Items of fan-outs fill every slot; each turn of the event loop and each commit then takes as long as all of them
together, and a single token of another execution waits for several such turns. While other executions are active and
turns are long, fewer items run at once. Items that run alone, or that only wait for I/O and so cause no
long turns, get every slot.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque

LONG_TURN_S = 0.0005
MIN_ITEMS = 4
MEASURE_INTERVAL_S = 0.005
OTHERS_ACTIVE_S = 5.0  # how long another execution counts as active after its last token


class FairShare:
    """A semaphore for fan-out items whose limit follows the measured length of the event loop's turns."""

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self.limit = slots
        self._items = 0
        self._per_execution: Counter[str] = Counter()
        self._others_until = 0.0
        self._competing = asyncio.Event()
        self._waiting: deque[asyncio.Future[None]] = deque()

    def note_other(self, execution: str, now: float) -> None:
        """Note a token that is no item. It counts only while items of a different execution run."""
        if self._per_execution and execution not in self._per_execution:
            self._others_until = now + OTHERS_ACTIVE_S
            self._competing.set()

    def shared(self, now: float) -> bool:
        """Return whether tokens of other executions were received in the last seconds."""
        return now < self._others_until

    async def acquire(self, execution: str) -> None:
        self._per_execution[execution] += 1
        if self._items < self.limit:
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
        self._items -= 1
        self._forget(execution)
        self._admit_waiting()

    def _forget(self, execution: str) -> None:
        self._per_execution[execution] -= 1
        if not self._per_execution[execution]:
            del self._per_execution[execution]

    def adjust(self, turn: float, now: float) -> None:
        """Adapt the limit to a turn of the event loop that took this many seconds."""
        if now >= self._others_until:
            self.limit = self._slots
        elif turn > LONG_TURN_S:
            self.limit = max(MIN_ITEMS, min(self.limit, self._items) * 3 // 4)
        else:
            self.limit = min(self._slots, self.limit + 1 + self.limit // 8)
        self._admit_waiting()

    def _admit_waiting(self) -> None:
        while self._items < self.limit and self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                self._items += 1
                waiter.set_result(None)

    async def run(self) -> None:
        """Measure the event loop's turns and adjust the limit until cancelled; without competing executions, wait."""
        loop = asyncio.get_running_loop()
        while True:
            await self._competing.wait()
            began = loop.time()
            await asyncio.sleep(MEASURE_INTERVAL_S)
            now = loop.time()
            if now >= self._others_until:
                self._competing.clear()
            elif not self._items:
                continue
            self.adjust(now - began - MEASURE_INTERVAL_S, now)
