"""Consumers: a worker that was killed leaves its name in the group of every stream that it read."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

from rune.adapters.redis.client import Client, RedisError
from rune.adapters.redis.keys import Keys
from rune.adapters.redis.streams import GROUP

log = logging.getLogger("rune.redis")

LONG = 600.0  # s without a word; what such a one had in its hands was handed out again long before
PERIOD = 300.0  # s between two looks
PAGE = 1_000


class Consumers:
    """Removes the names of those that are gone, of whichever queue, however many processes are at it."""

    def __init__(self, client: Client, keys: Keys) -> None:
        self._client = client
        self._keys = keys
        self._at = 0.0

    async def tidy(self) -> None:
        """Now and then. It is no more than tidying, so nobody else's work stops where it cannot be done."""
        if time.monotonic() < self._at:
            return
        self._at = time.monotonic() + PERIOD
        try:
            gone = await self.forget(LONG)
        except RedisError as error:
            log.warning("names of readers that are gone stay in Redis: %s", error.message)
        else:
            if gone:
                log.info("took %d names of readers that are gone out of their groups", gone)

    async def forget(self, silent: float) -> int:
        """Take out everybody who has nothing and has not read for so many seconds; how many names that were."""
        gone, ms = 0, round(silent * 1000)
        cursor: Any = 0
        pattern = f"{self._keys.prefix}:{{p*}}:stream:*"
        while True:
            cursor, streams = await self._client.call(
                "SCAN", cursor, "MATCH", pattern, "COUNT", PAGE, "TYPE", "stream"
            )
            asked = (self._client.run("forget", [each.decode()], GROUP, ms) for each in streams)
            gone += sum(map(int, await asyncio.gather(*asked)))
            if int(cursor) == 0:
                return gone
