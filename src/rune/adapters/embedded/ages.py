"""Ages: how long the head of a lane has waited, without a time for every entry."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence, Sized

from rune.ports.queue import LANES

STEP = 0.1  # s between two marks: what an age may be off by


class Ages:
    """Marks how many entries had been put into each lane at which moment."""

    __slots__ = ("_clock", "_marks", "_next", "put")

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.put = [0] * len(LANES)
        self._marks: tuple[deque[tuple[int, float]], ...] = tuple(deque() for _ in LANES)
        self._next = 0.0

    def mark(self, lanes: Sequence[Sized]) -> None:
        """Something is about to be put in."""
        now = self._clock()
        if now < self._next:
            return
        self._next = now + STEP
        for lane, marks in enumerate(self._marks):
            taken = self.put[lane] - len(lanes[lane])
            while len(marks) > 1 and marks[1][0] <= taken:
                marks.popleft()
            if not marks or marks[-1][0] < self.put[lane]:
                marks.append((self.put[lane], now))
            else:
                marks[-1] = (self.put[lane], now)

    def oldest(self, lanes: Sequence[Sized]) -> float:
        """How many seconds the oldest of all heads has waited."""
        now = self._clock()
        ages = [0.0]
        for lane, marks in enumerate(self._marks):
            taken = self.put[lane] - len(lanes[lane])
            ages += [now - at for put, at in marks if len(lanes[lane]) and put <= taken][-1:]
        return max(ages)
