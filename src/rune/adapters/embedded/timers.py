"""The timers of the executions in memory, by the time they are due."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush

from rune.core.effect import Timer

Due = Callable[[str, Timer], int | None]
"""When a timer of an execution is due by the clock of this process; None if it is not armed."""


class Timers:
    """A timer that was armed again is here twice; only the entry that its execution agrees with counts."""

    def __init__(self, due: Due) -> None:
        self._due = due
        self._heap: list[tuple[int, int, str, Timer]] = []
        self._pushed = 0

    def set(self, when: int, execution: str, timer: Timer) -> bool:
        """Add one; whether it is now the first to ring."""
        self._pushed += 1
        heappush(self._heap, (when, self._pushed, execution, timer))
        return self._heap[0][1] == self._pushed

    def next(self) -> int | None:
        """When the first one rings."""
        while self._heap and self._due(self._heap[0][2], self._heap[0][3]) != self._heap[0][0]:
            heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def ring(self, now: int) -> tuple[str, Timer] | None:
        """Take out the first one, if its time has come."""
        when = self.next()
        if when is None or when > now:
            return None
        _, _, execution, timer = heappop(self._heap)
        return execution, timer
