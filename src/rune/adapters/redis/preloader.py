"""Loads executions ahead of their timers.

To rebuild a state takes milliseconds, to fire a timer of a loaded one a fraction of that. Thousands of executions that
wait for the same moment would otherwise resume one after the other, for many seconds.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable

from rune.adapters.redis.client import Client, RedisError
from rune.adapters.redis.encoding import KeySpace
from rune.ports.journal import StoreUnavailableError

log = logging.getLogger("rune.state")

AHEAD_MS = 15_000
"""How long before its timer an execution is loaded."""

MIN_DUE = 200
"""Executions that have to be due within AHEAD_MS; fewer are loaded when they are due."""

PERIOD_S = 1.0
MAX_LOADED = 1_000
"""Executions that one turn loads."""

MAX_CONCURRENT = 16
"""Executions that are loaded at once. Due timers of other executions are fired meanwhile."""

MAX_REMEMBERED = 50_000

Load = Callable[[str], Awaitable[None]]
"""Loads one execution, unless it is loaded or another process loads it."""


class Preloader:
    """Loads executions in the background. Any number of processes may do so."""

    def __init__(self, client: Client, keys: KeySpace, load: Load) -> None:
        self._client = client
        self._keys = keys
        self._load = load
        self._loaded: OrderedDict[tuple[bytes, int], None] = OrderedDict()
        self._task: asyncio.Task[None] | None = None
        self._next_turn = 0.0

    def start(self, now: int) -> None:
        """Start a turn in the background, at most one per PERIOD_S."""
        if (self._task is None or self._task.done()) and time.monotonic() >= self._next_turn:
            self._next_turn = time.monotonic() + PERIOD_S
            self._task = asyncio.create_task(self._try_turn(now))

    async def _try_turn(self, now: int) -> None:
        try:
            await self.turn(now)
        except (StoreUnavailableError, RedisError) as error:
            log.info("executions are not loaded ahead of their timers: %s", error.message)

    async def turn(self, now: int) -> int:
        """Load executions that will be due soon, the earliest first; return their number."""
        due = await self._due_soon(now)
        waiting = iter([each for each in due if each not in self._loaded][:MAX_LOADED])
        count = 0

        async def lane() -> None:
            nonlocal count
            for each in waiting:
                self._remember(each)
                try:
                    await self._load(each[0].decode())
                    count += 1
                except (StoreUnavailableError, RedisError):
                    raise
                except Exception as error:
                    # Reported when the timer fires.
                    log.debug("%s is not loaded ahead of its timer: %s", each[0].decode(), error)

        await asyncio.gather(*(lane() for _ in range(MAX_CONCURRENT)))
        return count

    async def _due_soon(self, now: int) -> list[tuple[bytes, int]]:
        """Return executions and their due times, unless there are too few."""
        partitions = range(self._keys.partitions)
        span = (f"({now}", now + AHEAD_MS)
        counts = await asyncio.gather(
            *(self._client.call("ZCOUNT", self._keys.due(each), *span) for each in partitions)
        )
        if sum(counts) < MIN_DUE:
            return []
        calls = (
            self._client.call(
                "ZRANGE", self._keys.due(each), *span, "BYSCORE", "LIMIT", 0, MAX_LOADED, "WITHSCORES"
            )
            for each in partitions
        )
        found = [
            (execution, int(float(when)))
            for reply in await asyncio.gather(*calls)
            for execution, when in zip(reply[::2], reply[1::2], strict=True)
        ]
        return sorted(found, key=lambda each: each[1])

    def _remember(self, execution: tuple[bytes, int]) -> None:
        self._loaded[execution] = None
        if len(self._loaded) > MAX_REMEMBERED:
            self._loaded.popitem(last=False)

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
