"""The clock that state and timers use: the time of the store, not of the worker's machine."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    """Current time, and a sleep that can be interrupted."""

    def now(self) -> int:
        """Return the time in milliseconds since the epoch."""

    async def sleep_until(self, when: int | None) -> None:
        """Sleep until `when` (epoch ms) or until `wake` is called; None: only until `wake` is called."""

    def wake(self) -> None:
        """Interrupt the current sleep, because an earlier timer was set."""
