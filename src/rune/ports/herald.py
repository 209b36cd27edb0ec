"""The herald tells the outside how executions go. Nothing here depends on whether somebody listens."""

from __future__ import annotations

from typing import Protocol


class Herald(Protocol):
    """Messages in their final form, for whoever reads them."""

    def say(self, body: bytes) -> None:
        """A status. Neither waits nor fails: what cannot be told is dropped, the oldest first."""

    async def complete(self, body: bytes) -> None:
        """A completion: with whoever keeps it when this returns."""

    async def hand_over(self, body: bytes) -> None:
        """An execution that another engine is to run: with whoever keeps it when this returns."""
