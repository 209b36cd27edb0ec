"""Depths: how much waits in the streams of every queue, whoever serves it."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Sequence
from typing import Any

from rune.adapters.redis.client import Client, RedisError
from rune.adapters.redis.keys import Keys
from rune.adapters.redis.streams import DEFAULT, GROUP
from rune.ports.queue import LANES
from rune.ports.telemetry import Depth

LOOK = 60.0  # s between two looks for queues that nobody here has heard of
PAGE = 1_000


class Depths:
    """A queue is known by its streams, so one that no worker serves is seen too."""

    def __init__(self, client: Client, keys: Keys, queues: Sequence[str] = ()) -> None:
        self._client = client
        self._keys = keys
        self._queues = {DEFAULT, *queues}
        self._look_at = 0.0

    async def read(self) -> list[Depth]:
        """One for each queue."""
        if time.monotonic() >= self._look_at:
            self._look_at = time.monotonic() + LOOK
            self._queues |= await self._found()
        seconds, micros = await self._client.call("TIME")
        now = int(seconds) * 1000 + int(micros) // 1000
        return list(await asyncio.gather(*(self._depth(each, now) for each in sorted(self._queues))))

    async def _found(self) -> set[str]:
        pattern = re.compile(rb".*:stream:(.+):(?:" + "|".join(LANES).encode() + rb")")
        found: set[str] = set()
        cursor: Any = 0
        while True:
            cursor, names = await self._client.call(
                "SCAN",
                cursor,
                "MATCH",
                f"{self._keys.prefix}:{{p*}}:stream:*",
                "COUNT",
                PAGE,
                "TYPE",
                "stream",
            )
            found.update(match[1].decode() for name in names if (match := pattern.fullmatch(name)))
            if int(cursor) == 0:
                return found

    async def _depth(self, queue: str, now: int) -> Depth:
        streams = [
            self._keys.stream(part, queue, lane) for part in range(self._keys.partitions) for lane in LANES
        ]
        sizes = await asyncio.gather(*(self._client.call("XLEN", each) for each in streams))
        busy = [(stream, size) for stream, size in zip(streams, sizes, strict=True) if size]
        looked = await asyncio.gather(*(self._stream(stream, size) for stream, size in busy))
        firsts = [first for _, _, first in looked if first is not None]
        return Depth(
            queue=queue,
            waiting=sum(waiting for waiting, _, _ in looked),
            held=sum(held for _, held, _ in looked),
            age=max(0, now - min(firsts)) / 1000 if firsts else 0.0,
        )

    async def _stream(self, stream: str, size: int) -> tuple[int, int, int | None]:
        """How many wait, how many are held, and when the first that waits was put in."""
        try:
            groups = await self._client.call("XINFO", "GROUPS", stream)
        except RedisError:
            groups = []  # it is gone meanwhile
        held, behind = 0, b"-"
        for raw in groups:
            told = dict(zip(raw[::2], raw[1::2], strict=True))
            if told.get(b"name") == GROUP.encode():
                held, behind = int(told[b"pending"]), b"(" + told[b"last-delivered-id"]
        first = await self._client.call("XRANGE", stream, behind, "+", "COUNT", 1)
        waiting = max(0, size - held)
        return waiting, held, int(first[0][0].partition(b"-")[0]) if first and waiting else None
