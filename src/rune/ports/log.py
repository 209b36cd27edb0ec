"""The log: who changed what. Rows are added and never touched again, and hold no secrets."""

from __future__ import annotations

import secrets
from typing import Protocol

import msgspec

ASKED = "asked"
"""The outcome of an entry that is written before the act; one that is refused has a second entry with the code."""


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody wanted something to be changed. `number` grows with each entry; 0 before it is written."""

    id: str
    at: int
    actor: str
    action: str
    target: str
    details: dict[str, str] = {}
    outcome: str = ASKED
    number: int = 0


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """Which entries are wanted. `action` may be its first word only: `workflow` or `workflow.deploy`."""

    actor: str | None = None
    action: str | None = None
    target: str | None = None


ALL = Wanted()


def new_entry_id() -> str:
    """A name for an entry that may have to be sent twice."""
    return f"l{secrets.token_hex(12)}"


class Log(Protocol):
    """Entries in the order they were written."""

    async def write(self, entry: Entry) -> None:
        """Add an entry; the same one twice is one. Durable when this returns."""

    async def read(self, wanted: Wanted = ALL, *, before: int | None = None, limit: int = 100) -> list[Entry]:
        """Newest first, those with smaller numbers than `before`."""
