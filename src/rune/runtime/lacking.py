"""Lacking: node types that this process does not have. Others may; if nobody does for a while, the execution fails."""

from __future__ import annotations

import time

from rune.ports.fleet import Fleet

PATIENCE = 60.0  # s without any worker that has the type
MOST = 10_000


class Lacking:
    """Since when nobody has been seen who has a type, per execution and type. Without a fleet there are no others to
    wait for, and whoever owns the file next may have it: nothing fails."""

    def __init__(self, fleet: Fleet | None) -> None:
        self._fleet = fleet
        self._since: dict[tuple[str, str], float] = {}

    async def is_hopeless(self, execution: str, type: str) -> bool:
        """Whether it has been missed for too long."""
        if self._fleet is None:
            return False
        key = (execution, type)
        if any(type in each.types for each in await self._fleet.members() if "worker" in each.roles):
            self._since.pop(key, None)
            return False
        now = time.monotonic()
        if len(self._since) >= MOST:
            self._since.clear()
        return now - self._since.setdefault(key, now) >= PATIENCE
