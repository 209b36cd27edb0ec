"""The clock: the store's, never the worker's."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    """Time as an argument."""

    def now(self) -> int:
        """Epoch milliseconds."""

    async def sleep_until(self, when: int | None) -> None:
        """Until a moment, or until woken; None: until woken."""

    def wake(self) -> None:
        """End the sleep: something nearer has come."""
