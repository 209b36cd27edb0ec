"""Recovery: after a loss the alarms of every execution that has not ended are set again, in bulk, from the journal."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from rune.adapters.redis.client import Client
from rune.adapters.redis.keys import Keys

PAGE = 500
LEASE = 10_000  # ms: who recovers has so long for a page

Roll = Callable[[int, int], Awaitable[Sequence[tuple[int, str, int]]]]
"""Executions that have not ended, behind a number, so many: number, id, and when it has to be looked at (epoch ms)."""


class Recovery:
    """Goes through the roll once in each run of the server, a page at a time, whoever is at it."""

    def __init__(self, client: Client, keys: Keys, roll: Roll | None) -> None:
        self._client = client
        self._keys = keys
        self._roll = roll
        self._done = 0

    async def is_due(self) -> bool:
        """Whether some of the roll is still to be read in this run of the server."""
        return self._roll is not None and self._done != await self._client.incarnation()

    async def work(self, now: int) -> None:
        """Set alarms until the roll is through, if nobody else is at it. An alarm that rings at the same place or
        earlier stays."""
        while self._roll is not None and await self.is_due():
            incarnation = await self._client.incarnation()
            place = f"{self._keys.prefix}:recovered:{incarnation}"
            reached = await self._client.call("GET", place)
            if reached == b"all":
                self._done = incarnation
                return
            mine = await self._client.call("SET", f"{place}:lease", "1", "NX", "PX", LEASE)
            if mine is None:
                return
            await self._page(place, int(reached or 0))
            await self._client.call("DEL", f"{place}:lease")

    async def _page(self, place: str, after: int) -> None:
        assert self._roll is not None
        rows = await self._roll(after, PAGE)
        alarms: dict[str, list[str | int]] = {}
        for _, execution, when in rows:
            key = self._keys.alarms(self._keys.partition(execution))
            alarms.setdefault(key, []).extend((when, execution))
        for key, pairs in alarms.items():
            await self._client.call("ZADD", key, "LT", *pairs)
        await self._client.call("SET", place, str(rows[-1][0]) if len(rows) == PAGE else "all")
