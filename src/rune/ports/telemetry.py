"""What stores tell of themselves when they are asked how things stand. A store that cannot tell lacks the verb."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import msgspec


class Depth(msgspec.Struct, frozen=True, kw_only=True):
    """One queue: hints that wait for a free slot, those in somebody's hands, and how long the oldest has waited (s)."""

    queue: str
    waiting: int
    held: int | None = None  # None: not known here
    age: float | None = None


class Backlog(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of an outbox, and how long the oldest that nobody served is overdue (s)."""

    rows: int
    lag: float


@runtime_checkable
class Deep(Protocol):
    """A queue that knows how deep it is."""

    async def depths(self) -> list[Depth]:
        """Each queue of which anything is known."""


@runtime_checkable
class Backlogged(Protocol):
    """An outbox that knows how far behind it is."""

    async def backlog(self) -> Backlog:
        """How it stands now."""
