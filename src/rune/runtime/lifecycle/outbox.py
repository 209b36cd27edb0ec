"""Notices: says to the outbox what was done by whoever wrote the row. Nobody waits for that."""

from __future__ import annotations

import asyncio

from rune.ports.journal import StoreUnavailableError
from rune.ports.outbox import Kind, Outbox


class OutboxMarker:
    """Without an outbox there is nothing to say."""

    def __init__(self, outbox: Outbox | None) -> None:
        self._outbox = outbox
        self._saying: set[asyncio.Task[None]] = set()

    def mark_done(self, execution: str, kind: Kind) -> None:
        """It is done; if that is not heard, a relay does it once more."""
        if self._outbox is not None:
            saying = asyncio.create_task(self._say(self._outbox, execution, kind))
            self._saying.add(saying)
            saying.add_done_callback(self._saying.discard)

    async def _say(self, outbox: Outbox, execution: str, kind: Kind) -> None:
        try:
            await outbox.mark_done(execution, kind)
        except StoreUnavailableError:
            return  # the row stays, and with it a second look

    async def close(self) -> None:
        """Wait until everything is said."""
        await asyncio.gather(*self._saying, return_exceptions=True)
