"""Queue in the memory of the owner process. The state has every token that it contains, so a crash loses nothing."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence, Sized

from rune.core.execution.token import Token
from rune.ports.inspection import QueueDepth
from rune.ports.queue import LANES, NORMAL, Delivery, is_sibling, lane_of, lanes_at

AGE_RESOLUTION_S = 0.1
"""Interval of the samples that ages are computed from, and so their error."""


class SqliteQueue:
    """Implements the queue port with one deque per lane."""

    def __init__(self) -> None:
        self._lanes: tuple[deque[Delivery], ...] = tuple(deque() for _ in LANES)
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._turn = 0
        self._paused = False
        self._wake_scheduled = False
        self._ages = QueueAges()

    def __len__(self) -> int:
        return sum(map(len, self._lanes))

    async def send(self, execution: str, tokens: Sequence[Token], priority: int = NORMAL) -> None:
        self._ages.mark(self._lanes)
        for token in tokens:
            lane = lane_of(priority, items=bool(token.path))
            self._ages.put[lane] += 1
            self._lanes[lane].append(Delivery(execution, token))
        self._schedule_wake()

    async def depths(self) -> list[QueueDepth]:
        """Return one depth: a single process serves all queues."""
        return [QueueDepth(queue="default", waiting=len(self), age=self._ages.oldest(self._lanes))]

    def _schedule_wake(self) -> None:
        """Wake waiting consumers in the next turn of the loop, so that the sender can take its own token first."""
        if not self._wake_scheduled and self._waiting:
            self._wake_scheduled = True
            asyncio.get_running_loop().call_soon(self._wake)

    def _wake(self) -> None:
        self._wake_scheduled = False
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
                    self._schedule_wake()
                raise

    def _next(self) -> Delivery | None:
        if self._paused:
            return None
        self._turn += 1
        for lane in lanes_at(self._turn):
            if self._lanes[lane]:
                return self._lanes[lane].popleft()
        return None

    async def receive_more(self, delivery: Delivery, limit: int) -> list[Delivery]:
        """Return the siblings at the head of a lane, so that no delivery overtakes another one of its lane."""
        if self._paused:
            return []
        for lane in self._lanes:
            if lane and is_sibling(delivery, lane[0]):
                found = [lane.popleft()]
                while len(found) < limit and lane and is_sibling(delivery, lane[0]):
                    found.append(lane.popleft())
                return found
        return []

    async def ack(self, delivery: Delivery) -> None:
        """Do nothing: `receive` has removed the hint."""

    async def requeue(self, delivery: Delivery, delay: float = 0.0) -> None:
        if delay:
            asyncio.get_running_loop().call_later(delay, self._enqueue_again, delivery)
        else:
            self._enqueue_again(delivery)

    async def dead_letter(self, delivery: Delivery, code: str, message: str) -> None:
        """Do nothing: the journal records the failure."""

    async def pause(self) -> None:
        self._paused = True

    async def resume(self) -> None:
        self._paused = False
        self._schedule_wake()

    async def close(self) -> None:
        """Do nothing: the queue ends with the process."""

    def _enqueue_again(self, delivery: Delivery) -> None:
        self._ages.mark(self._lanes)
        lane = lane_of(NORMAL, items=bool(delivery.token.path))
        self._ages.put[lane] += 1
        self._lanes[lane].append(delivery)
        self._schedule_wake()


class QueueAges:
    """Measures how long the head of each lane has waited, without storing a time per entry.

    It samples how many entries were put into each lane at which time.
    """

    __slots__ = ("_clock", "_marks", "_next", "put")

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.put = [0] * len(LANES)
        self._marks: tuple[deque[tuple[int, float]], ...] = tuple(deque() for _ in LANES)
        self._next = 0.0

    def mark(self, lanes: Sequence[Sized]) -> None:
        """Take a sample. To be called before entries are added."""
        now = self._clock()
        if now < self._next:
            return
        self._next = now + AGE_RESOLUTION_S
        for lane, marks in enumerate(self._marks):
            taken = self.put[lane] - len(lanes[lane])
            while len(marks) > 1 and marks[1][0] <= taken:
                marks.popleft()
            if not marks or marks[-1][0] < self.put[lane]:
                marks.append((self.put[lane], now))
            else:
                marks[-1] = (self.put[lane], now)

    def oldest(self, lanes: Sequence[Sized]) -> float:
        """Return how many seconds the oldest entry has waited."""
        now = self._clock()
        ages = [0.0]
        for lane, marks in enumerate(self._marks):
            taken = self.put[lane] - len(lanes[lane])
            ages += [now - at for put, at in marks if len(lanes[lane]) and put <= taken][-1:]
        return max(ages)
