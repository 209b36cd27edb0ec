"""Recovery: after a loss every execution that has not ended is to be looked at again, as the journal says."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from rune.adapters.redis.client import Client
from rune.adapters.redis.keys import Keys

PAGE = 500
LEASE = 10_000  # ms: who recovers has so long for a page
KEPT = (
    30 * 86_400
)  # s: servers that come and go leave no marks for good; to go through the roll again does no harm

Roll = Callable[[str, int], Awaitable[Sequence[tuple[str, int | None]]]]
"""Executions that have not ended, by id, behind an id, so many, and when each has to be looked at (epoch ms); None: as
soon as may be."""

THROUGH = "*"
"""Behind the last page; no id reads like this."""


class Recovery:
    """Goes through the roll once in each run of the server, a page at a time, whoever is at it."""

    def __init__(self, client: Client, keys: Keys, roll: Roll | None) -> None:
        self._client = client
        self._keys = keys
        self._roll = roll

    async def is_due(self) -> bool:
        """Whether some of the roll is still to be read; a server that was emptied has forgotten that it was."""
        return (
            self._roll is not None and await self._client.call("GET", await self._place()) != THROUGH.encode()
        )

    async def _place(self) -> str:
        return f"{self._keys.prefix}:recovered:{(await self._client.incarnation())[0]}"

    async def work(self) -> None:
        """Go on until the roll is through, if nobody else is at it. What is due earlier stays so."""
        while await self.is_due():
            place = await self._place()
            mine = await self._client.call("SET", f"{place}:lease", "1", "NX", "PX", LEASE)
            if mine is None:
                return
            await self._page(place, (await self._client.call("GET", place) or b"").decode())
            await self._client.call("DEL", f"{place}:lease")

    async def _page(self, place: str, after: str) -> None:
        assert self._roll is not None
        rows = await self._roll(after, PAGE)
        times: dict[str, list[str | int]] = {}
        for execution, when in rows:
            key = self._keys.due(self._keys.partition(execution))
            times.setdefault(key, []).extend((when or 0, execution))
        for key, pairs in times.items():
            await self._client.call("ZADD", key, "LT", *pairs)
        reached = rows[-1][0] if len(rows) == PAGE else THROUGH
        await self._client.call("SET", place, reached, "EX", KEPT)
