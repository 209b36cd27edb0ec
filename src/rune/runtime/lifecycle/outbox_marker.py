"""Marks outbox rows as done."""

from __future__ import annotations

import asyncio

from rune.ports.journal import (
    Kind,
    Outbox,
    StoreUnavailableError,
)


class OutboxMarker:
    """Marks outbox rows as done in the background, after this process has done their work itself.

    Does nothing on a backend without an outbox.
    """

    def __init__(self, outbox: Outbox | None) -> None:
        self._outbox = outbox
        self._tasks: set[asyncio.Task[None]] = set()

    def mark_done(self, execution: str, kind: Kind) -> None:
        """Mark a row as done without waiting. If that fails, the relay does the work once more, which is harmless."""
        if self._outbox is not None:
            task = asyncio.create_task(self._mark(self._outbox, execution, kind))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _mark(self, outbox: Outbox, execution: str, kind: Kind) -> None:
        try:
            await outbox.mark_done(execution, kind)
        except StoreUnavailableError:
            return  # the row stays, and the relay takes it

    async def close(self) -> None:
        """Wait for all pending marks."""
        await asyncio.gather(*self._tasks, return_exceptions=True)
