"""A virtual clock for tests."""

from __future__ import annotations

import asyncio

START = 1_700_000_000_000


class VirtualClock:
    """A clock whose time changes only when the test advances it."""

    def __init__(self, start: int = START) -> None:
        self._now = start
        self._woken = False
        self._sleepers: dict[asyncio.Future[None], int | None] = {}

    def now(self) -> int:
        return self._now

    @property
    def asleep(self) -> bool:
        """Return whether a task is sleeping and has not been woken."""
        return bool(self._sleepers) and not self._woken

    @property
    def next(self) -> int | None:
        """Return the earliest wake-up time of the sleeping tasks."""
        return min((when for when in self._sleepers.values() if when is not None), default=None)

    async def sleep_until(self, when: int | None) -> None:
        if self._woken or (when is not None and when <= self._now):
            self._woken = False
            await asyncio.sleep(0)
            return
        sleeper: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sleepers[sleeper] = when
        try:
            await sleeper
        finally:
            self._sleepers.pop(sleeper, None)
            self._woken = False

    def wake(self) -> None:
        """End the current sleep, or the next one if no task is sleeping."""
        self._woken = True
        for sleeper in self._sleepers:
            _end(sleeper)

    def advance(self, ms: int) -> None:
        """Advance the time."""
        if ms < 0:
            raise ValueError("time cannot go backwards")
        self._now += ms
        for sleeper, when in self._sleepers.items():
            if when is not None and when <= self._now:
                _end(sleeper)

    def advance_to_next(self) -> bool:
        """Advance the time to the next wake-up; return False if no task waits for a time."""
        when = self.next
        if when is None:
            return False
        self.advance(max(0, when - self._now))
        return True


def _end(sleeper: asyncio.Future[None]) -> None:
    if not sleeper.done():
        sleeper.set_result(None)
