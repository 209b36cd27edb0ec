"""The fleet: the processes that take part, as they show themselves. For people; leases decide who works."""

from __future__ import annotations

from typing import Protocol

import msgspec

BEAT = 5.0
"""How often a process shows that it is there, in seconds."""

GONE = 15.0
"""After how long without a sign it counts as gone."""


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """One process."""

    name: str
    host: str
    pid: int
    roles: tuple[str, ...]
    version: str
    started_at: int
    seen_at: int = 0
    queues: tuple[str, ...] = ()
    types: tuple[str, ...] = ()  # the node types that it can run
    slots: int = 0
    busy: int = 0
    draining: bool = False


class Fleet(Protocol):
    """Who is there."""

    async def beat(self, member: Member) -> None:
        """This process is there; the time of it is the store's."""

    async def leave(self, name: str) -> None:
        """It goes."""

    async def members(self) -> list[Member]:
        """Everybody who was seen of late, the oldest first."""
