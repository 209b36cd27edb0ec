"""The clock that state and timers use: the time of the store or of the system; and the text form of times."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Current time, and a sleep that can be interrupted."""

    def now(self) -> int:
        """Return the time in milliseconds since the epoch."""

    async def sleep_until(self, when: int | None) -> None:
        """Sleep until `when` (epoch ms) or until `wake` is called; None: only until `wake` is called."""

    def wake(self) -> None:
        """Interrupt the current sleep, because an earlier timer was set."""


class SystemClock:
    """Epoch milliseconds, and a sleep that `wake` ends early."""

    def __init__(self) -> None:
        self._wakeup = asyncio.Event()

    def now(self) -> int:
        return time.time_ns() // 1_000_000

    async def sleep_until(self, when: int | None) -> None:
        if not self._wakeup.is_set():
            delay = None if when is None else max(0.0, (when - self.now()) / 1000)
            try:
                async with asyncio.timeout(delay):
                    await self._wakeup.wait()
            except TimeoutError:
                pass
        self._wakeup.clear()

    def wake(self) -> None:
        self._wakeup.set()


def iso(at: int | None) -> str | None:
    """Format epoch milliseconds as ISO 8601, if there are any."""
    return None if at is None else moment(at)


def moment(at: int) -> str:
    """Format epoch milliseconds as ISO 8601."""
    return datetime.fromtimestamp(at / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
