"""A clock that is told what time it is."""

from __future__ import annotations

import asyncio

START = 1_700_000_000_000


class VirtualClock:
    """Time stands still until somebody moves it."""

    def __init__(self, start: int = START) -> None:
        self._now = start
        self._woken = False
        self._sleepers: dict[asyncio.Future[None], int | None] = {}

    def now(self) -> int:
        return self._now

    @property
    def asleep(self) -> bool:
        """Whether somebody sleeps and has not been woken."""
        return bool(self._sleepers) and not self._woken

    @property
    def next(self) -> int | None:
        """When the first sleeper wants to be woken."""
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
        """End the sleep; if nobody sleeps, the next sleep."""
        self._woken = True
        for sleeper in self._sleepers:
            _end(sleeper)

    def advance(self, ms: int) -> None:
        """Let time pass."""
        if ms < 0:
            raise ValueError("time does not go back")
        self._now += ms
        for sleeper, when in self._sleepers.items():
            if when is not None and when <= self._now:
                _end(sleeper)

    def advance_to_next(self) -> bool:
        """Let time pass until the first sleeper is due; False if nobody waits for a moment."""
        when = self.next
        if when is None:
            return False
        self.advance(max(0, when - self._now))
        return True


def _end(sleeper: asyncio.Future[None]) -> None:
    if not sleeper.done():
        sleeper.set_result(None)
