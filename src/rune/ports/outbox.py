"""Outbox for work that follows from a journal write, and the publisher of messages to other systems.

Only backends with separate stores for journal and state have an outbox: a process that crashes between the two writes
leaves a row from which a relay resumes. In the embedded backend both are one transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

import msgspec

Kind = Literal["start", "end"]


class OutboxRow(msgspec.Struct, frozen=True):
    """Work to do: `start` opens the execution, `end` closes its state and publishes the completion. `body` is the
    message, once it was built."""

    number: int
    execution: str
    kind: Kind
    body: bytes | None = None


class Outbox(Protocol):
    """Rows of pending work. A row is written in the transaction of the fact that it follows from. Several relays may
    take rows concurrently."""

    async def take(self, limit: int) -> list[OutboxRow]:
        """Return overdue rows, oldest first, and hide them from other relays for a while."""

    async def keep(self, number: int, body: bytes) -> bytes:
        """Store the message of a row and return the one that was stored first, so that every send is identical."""

    async def done(self, numbers: Sequence[int]) -> None:
        """Delete rows whose work is complete. Idempotent; a row that is not deleted is processed again."""

    async def mark_done(self, execution: str, kind: Kind) -> None:
        """Delete the row of an execution, for the process that wrote it and does not know its number."""


class EventPublisher(Protocol):
    """Publishes encoded messages. The engine does not depend on whether a consumer reads them."""

    def publish_status(self, body: bytes) -> None:
        """Publish a status. Never blocks or raises: statuses that cannot be sent are dropped, the oldest first."""

    async def publish_completion(self, body: bytes) -> None:
        """Publish a completion. The broker has stored it when this returns."""

    async def hand_over(self, body: bytes) -> None:
        """Publish an execution for another engine to run. The broker has stored it when this returns."""


class EventHandler(Protocol):
    """Takes encoded messages about executions. They are hints: any may be lost, malformed or come twice."""

    async def on_statuses(self, bodies: Sequence[bytes]) -> None:
        """Take status messages in the order of their arrival."""

    async def on_completion(self, body: bytes) -> None:
        """Take a completion message."""


class EventConsumer(Protocol):
    """Consumes the messages that workers publish."""

    async def run(self, handler: EventHandler) -> None:
        """Pass messages to the handler until cancelled. While the broker is away, wait for it."""
