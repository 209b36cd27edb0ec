"""The outbox: what has to be done once an execution has started or ended, until somebody says that it is done.

Where journal and state are one store there is no outbox: an act there is whole or it is not.

The herald tells the outside how executions go. Nothing here depends on whether somebody listens.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

import msgspec

Kind = Literal["start", "end"]


class OutboxRow(msgspec.Struct, frozen=True):
    """One row. `start`: open the execution. `end`: close its state and say so. `body`: the message, if it was made."""

    number: int
    execution: str
    kind: Kind
    body: bytes | None = None


class Outbox(Protocol):
    """A row is written in the same act as what it follows from. Several relays may take rows at once."""

    async def take(self, limit: int) -> list[OutboxRow]:
        """Rows that were left lying, oldest first; theirs for a while who took them."""

    async def keep(self, number: int, body: bytes) -> bytes:
        """Keep the message of a row, so that it is the same however often it is sent; answers the one kept first."""

    async def done(self, numbers: Sequence[int]) -> None:
        """Nothing is left to do for these. Twice is once, and where it is forgotten it is only done again."""

    async def mark_done(self, execution: str, kind: Kind) -> None:
        """The same, by whoever wrote the row."""


class EventPublisher(Protocol):
    """Messages in their final form, for whoever reads them."""

    def publish_status(self, body: bytes) -> None:
        """A status. Neither waits nor fails: what cannot be told is dropped, the oldest first."""

    async def publish_completion(self, body: bytes) -> None:
        """A completion: with whoever keeps it when this returns."""

    async def hand_over(self, body: bytes) -> None:
        """An execution that another engine is to run: with whoever keeps it when this returns."""
