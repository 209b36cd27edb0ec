"""Streams: which stream carries which token, and how entries are read, renewed, reclaimed and let go."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from typing import Any

import msgspec

from rune.adapters.redis.client import Client, RedisError
from rune.adapters.redis.keys import Keys
from rune.adapters.redis.texts import token_bytes, token_of
from rune.core.token import Token
from rune.ports.queue import LANES, lane_of

GROUP = "workers"
DEFAULT = "default"
AT_ONCE = 500


class Entry(msgspec.Struct, gc=False):
    """One entry in somebody's hands."""

    stream: str
    id: bytes
    execution: str
    token: Token
    again: bool = False


class Streams:
    """The streams that one consumer reads. `queues`: those whose nodes it runs."""

    def __init__(self, client: Client, keys: Keys, consumer: str, queues: Sequence[str] = (DEFAULT,)) -> None:
        self._client = client
        self._keys = keys
        self._consumer = consumer
        self._queues = tuple(queues)
        self._busy = 1
        parts = range(keys.partitions)
        self._lanes = {
            lane: [keys.stream(part, queue, lane) for queue in self._queues for part in parts]
            for lane in LANES
        }
        self.all = [stream for lane in LANES for stream in self._lanes[lane]]

    async def make_groups(self) -> None:
        """The group of every stream; one that is there stays as it is."""
        made = (self._client.call("XGROUP", "CREATE", each, GROUP, "0", "MKSTREAM") for each in self.all)
        for answer in await asyncio.gather(*made, return_exceptions=True):
            if isinstance(answer, BaseException) and not _says(answer, "BUSYGROUP"):
                raise answer

    async def add(
        self, execution: str, tokens: Sequence[Token], priority: int, queues: Sequence[str]
    ) -> None:
        part = self._keys.partition(execution)
        sent = (
            self._client.call(
                "XADD",
                self._keys.stream(part, queue, LANES[lane_of(priority, items=bool(token.path))]),
                "*",
                "x",
                execution,
                "t",
                token_bytes(token),
            )
            for token, queue in zip(tokens, queues, strict=True)
        )
        await asyncio.gather(*sent)

    async def read(self, lane: str, want: int) -> list[Entry]:
        """New entries of one lane, about as many as wanted: the limit of the command is per stream."""
        each = max(1, math.ceil(want / self._busy))
        found = await self._read(self._client, self._lanes[lane], each)
        if found:
            self._busy = len({entry.stream for entry in found})
        return found

    async def wait(self, blocking: Client, ms: int) -> list[Entry]:
        """The next new entries of any lane, or none within this time."""
        return await self._read(blocking, self.all, 1, ("BLOCK", max(1, ms)))

    async def _read(
        self, client: Client, streams: list[str], each: int, more: tuple[str | int, ...] = ()
    ) -> list[Entry]:
        behind = (">",) * len(streams)
        asked = (
            "XREADGROUP",
            "GROUP",
            GROUP,
            self._consumer,
            "COUNT",
            each,
            *more,
            "STREAMS",
            *streams,
            *behind,
        )
        try:
            answer = await client.call(*asked)
        except RedisError as error:
            if not _says(error, "NOGROUP"):
                raise
            await self.make_groups()  # the server has lost them
            return []
        return [entry for stream, rows in answer or () for entry in _entries(stream.decode(), rows)]

    async def reclaim(self, idle: int, most: int) -> list[Entry]:
        """Entries that somebody took and has not been heard of since."""
        asked = (
            self._client.call("XAUTOCLAIM", each, GROUP, self._consumer, idle, "0", "COUNT", most)
            for each in self.all
        )
        found: list[Entry] = []
        for stream, answer in zip(
            self.all, await asyncio.gather(*asked, return_exceptions=True), strict=True
        ):
            if isinstance(answer, BaseException):
                if not _says(answer, "NOGROUP"):
                    raise answer
                continue
            found += _entries(stream, answer[1], again=True)
        return found

    async def renew(self, held: Sequence[Entry]) -> None:
        """Entries that are still in our hands."""
        by_stream: dict[str, list[bytes]] = {}
        for entry in held:
            by_stream.setdefault(entry.stream, []).append(entry.id)
        claims = (
            self._client.call(
                "XCLAIM", stream, GROUP, self._consumer, 0, *ids[start : start + AT_ONCE], "JUSTID"
            )
            for stream, ids in by_stream.items()
            for start in range(0, len(ids), AT_ONCE)
        )
        await asyncio.gather(*claims)

    async def let_go(self, entry: Entry) -> None:
        """Deleted first: of one that is gone the group's list of what is pending takes care by itself."""
        gone = self._client.call("XDEL", entry.stream, entry.id)
        done = self._client.call("XACK", entry.stream, GROUP, entry.id)
        await asyncio.gather(gone, done)

    async def put_back(self, entry: Entry) -> None:
        """At the end of its stream."""
        again = self._client.call(
            "XADD", entry.stream, "*", "x", entry.execution, "t", token_bytes(entry.token)
        )
        await asyncio.gather(again, self.let_go(entry))

    async def put_off(self, entry: Entry, due: int) -> None:
        part = self._keys.partition(entry.execution)
        queue, key = self._place(part, entry.stream)
        name = entry.execution.encode()
        number = int(entry.id.replace(b"-", b""))
        member = b"%d %d %d %b%b" % (key, number, len(name), name, token_bytes(entry.token))
        await self._client.call("ZADD", self._keys.later(part, queue), due, member)
        await self.let_go(entry)

    def _place(self, part: int, stream: str) -> tuple[str, int]:
        """The queue of a stream, and its place among the keys of the script that brings back."""
        for queue in self._queues:
            lanes = self._of_queue(part, queue)
            if stream in lanes:
                return queue, lanes.index(stream) + 2
        raise ValueError(f"{stream} is none of those that are read here")

    def _of_queue(self, part: int, queue: str) -> list[str]:
        return [self._keys.stream(part, queue, lane) for lane in LANES]

    async def bring(self) -> int:
        """Move what was put off and is due; how many there were."""
        moves = (
            self._client.run(
                "later", [self._keys.later(part, queue), *self._of_queue(part, queue)], 0, AT_ONCE
            )
            for part in range(self._keys.partitions)
            for queue in self._queues
        )
        return sum(await asyncio.gather(*moves))

    async def leave(self) -> None:
        """Take this consumer out of the groups where nothing is left in its hands."""
        asked = (self._client.call("XPENDING", each, GROUP, "-", "+", 1, self._consumer) for each in self.all)
        pending = await asyncio.gather(*asked, return_exceptions=True)
        done = (
            self._client.call("XGROUP", "DELCONSUMER", stream, GROUP, self._consumer)
            for stream, found in zip(self.all, pending, strict=True)
            if found == []
        )
        await asyncio.gather(*done)


def _entries(stream: str, rows: Any, *, again: bool = False) -> list[Entry]:
    found = []
    for id, fields in rows:
        if fields is not None:
            given = dict(zip(fields[::2], fields[1::2], strict=True))
            found.append(Entry(stream, id, given[b"x"].decode(), token_of(given[b"t"]), again))
    return found


def _says(error: BaseException, word: str) -> bool:
    return isinstance(error, RedisError) and error.code == word
