"""Deadlines: how long calls may take. One timer serves all calls that were given the same number of seconds, because
they run out in the order in which they began; a timer for each costs more than much of what a call does."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from types import TracebackType


class Within:
    """A block that is cancelled when its time is over, and then raises TimeoutError."""

    __slots__ = ("_asked", "_here", "_line", "over", "when")

    _here: asyncio.Task[object]

    def __init__(self, line: Line) -> None:
        self._line = line
        self.when = 0.0
        self.over = False

    def __enter__(self) -> None:
        here = asyncio.current_task()
        assert here is not None
        self._asked = here.cancelling()
        self._here = here
        self._line.add(self)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self.over:
            self._line.remove(self)
        # Somebody else may want it to stop as well: that is not ours to turn into a failure.
        elif self._here.uncancel() <= self._asked and kind is asyncio.CancelledError:
            raise TimeoutError from error

    def end(self) -> None:
        """The time is over."""
        self.over = True
        self._here.cancel()


class Line:
    """Those who were given the same time, in the order in which it runs out."""

    def __init__(self, lines: Deadlines, seconds: float) -> None:
        self._lines = lines
        self._seconds = seconds
        self._loop = asyncio.get_running_loop()
        self._waiting: OrderedDict[Within, None] = OrderedDict()
        self._timer: asyncio.TimerHandle | None = None

    def add(self, one: Within) -> None:
        """Somebody begins."""
        one.when = self._loop.time() + self._seconds
        self._waiting[one] = None
        if self._timer is None:
            self._timer = self._loop.call_at(one.when, self._ring)

    def remove(self, one: Within) -> None:
        """Somebody is done in time."""
        self._waiting.pop(one, None)

    def _ring(self) -> None:
        now = self._loop.time()
        while self._waiting:
            first = next(iter(self._waiting))
            if first.when > now:
                self._timer = self._loop.call_at(first.when, self._ring)
                return
            del self._waiting[first]
            first.end()
        self._timer = None
        self._lines.forget(self._seconds)

    def close(self) -> None:
        """Nobody will be told any more."""
        if self._timer is not None:
            self._timer.cancel()


class Deadlines:
    """The lines, by seconds."""

    def __init__(self) -> None:
        self._lines: dict[float, Line] = {}

    def within(self, seconds: float) -> Within:
        """So many seconds for a block."""
        line = self._lines.get(seconds)
        if line is None:
            line = self._lines[seconds] = Line(self, seconds)
        return Within(line)

    def forget(self, seconds: float) -> None:
        """Nobody is in this line any more."""
        self._lines.pop(seconds, None)

    def close(self) -> None:
        """Stop the timers."""
        for line in self._lines.values():
            line.close()
        self._lines.clear()
