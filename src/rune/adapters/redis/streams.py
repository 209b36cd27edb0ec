"""Streams: which stream carries which token, and how entries are read, renewed, reclaimed and let go.

Consumers: a worker that was killed leaves its name in the group of every stream that it read.

The outlet: with streams as the queue, an act itself sends what it emits and lets go what brought its token.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from rune.adapters.redis.client import Client, RedisError
from rune.adapters.redis.encoding import CachedExecution, decode_token, encode_token
from rune.adapters.redis.keys import Keys
from rune.core.execution.decision import Decision
from rune.core.execution.fact import RaceWinner
from rune.core.execution.token import Path, Token
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
                encode_token(token),
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
            "XADD", entry.stream, "*", "x", entry.execution, "t", encode_token(entry.token)
        )
        await asyncio.gather(again, self.let_go(entry))

    async def put_off(self, entry: Entry, due: int) -> None:
        part = self._keys.partition(entry.execution)
        queue, key = self._place(part, entry.stream)
        name = entry.execution.encode()
        number = int(entry.id.replace(b"-", b""))
        member = b"%d %d %d %b%b" % (key, number, len(name), name, encode_token(entry.token))
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
            found.append(Entry(stream, id, given[b"x"].decode(), decode_token(given[b"t"]), again))
    return found


def _says(error: BaseException, word: str) -> bool:
    return isinstance(error, RedisError) and error.code == word


log = logging.getLogger("rune.redis")

IDLE_CONSUMER_S = 600.0  # s without a word; what such a one had in its hands was handed out again long before
PERIOD_S = 300.0  # s between two looks
PAGE = 1_000


class ConsumerCleaner:
    """Removes the names of those that are gone, of whichever queue, however many processes are at it."""

    def __init__(self, client: Client, keys: Keys) -> None:
        self._client = client
        self._keys = keys
        self._at = 0.0

    async def tidy(self) -> None:
        """Now and then. It is no more than tidying, so nobody else's work stops where it cannot be done."""
        if time.monotonic() < self._at:
            return
        self._at = time.monotonic() + PERIOD_S
        try:
            gone = await self.forget(IDLE_CONSUMER_S)
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


OWN = 5  # keys of an execution that scripts take before those of streams
FIRST_NAMED = 8
FOLDED = 8  # the first key behind those that folding takes

NOTHING_SENT = ("", "", "")


class HeldEntries(Protocol):
    """Who holds the entries that were delivered here."""

    def is_held(self, execution: str, node: int, path: Path) -> Entry | None:
        """The entry of a token, if it was delivered here and is not let go."""

    def release_entry(self, entry: Entry) -> None:
        """It was let go elsewhere."""


class StreamSender:
    """Where the tokens of executions go."""

    def __init__(self, keys: Keys, hands: HeldEntries | None = None) -> None:
        self._keys = keys
        self._hands = hands
        self._routes: dict[str, tuple[tuple[str, ...], bytes | str]] = {}

    def entry(self, execution: str, decisions: Sequence[Decision]) -> Entry | None:
        """What brought the token of the first decision. A choice comes before its token runs, which goes on."""
        first = decisions[0]
        if self._hands is None or type(first.fact) is RaceWinner:
            return None
        return self._hands.is_held(execution, first.node, first.path)

    def let_go(self, entry: Entry | None) -> None:
        if entry is not None and self._hands is not None:
            self._hands.release_entry(entry)

    def keys(self, known: CachedExecution, entry: Entry | None = None) -> tuple[str, ...]:
        """The keys of a script that sends."""
        execution = known.accepted.id
        (most, *named), items = self._streams(known)
        served = most if entry is None else entry.stream
        return (*self._keys.of(execution)[:OWN], most, served, *named, *items)

    def _streams(self, known: CachedExecution) -> tuple[list[str], list[str]]:
        """Those of most tokens and of named queues: for an execution itself, and for items of its fan-outs."""
        part, names = self._keys.partition(known.accepted.id), (DEFAULT, *self._named(known)[0])
        own, below = (LANES[lane_of(known.accepted.priority, items=each)] for each in (False, True))
        return (
            [self._keys.stream(part, each, own) for each in names],
            [self._keys.stream(part, each, below) for each in names],
        )

    def arguments(
        self, known: CachedExecution, entry: Entry | None = None, *more: Entry
    ) -> tuple[str | bytes, ...]:
        first = b"" if entry is None else entry.id
        if more:
            return GROUP, self._named(known)[1], first, *(each.id for each in more)
        return GROUP, self._named(known)[1], first

    def opening(
        self, known: CachedExecution, tokens: Sequence[Token]
    ) -> tuple[tuple[str, ...], list[int | bytes]]:
        """The streams of an execution as a script takes them behind the keys of a fold, and what goes into them."""
        own, items = self._streams(known)
        names = (DEFAULT, *self._named(known)[0])
        sent: list[int | bytes] = []
        for token in tokens:
            queue = known.plan.nodes[token.node].node.queue or DEFAULT
            place = names.index(queue) + (len(own) if token.path else 0)
            sent += (FOLDED + place, encode_token(token))
        return (*own, *items), sent

    def _named(self, known: CachedExecution) -> tuple[tuple[str, ...], bytes | str]:
        found = self._routes.get(known.plan.hash)
        if found is None:
            named = {
                each.index: each.node.queue
                for each in known.plan.nodes
                if each.node.queue not in (None, DEFAULT)
            }
            queues = tuple(sorted({str(each) for each in named.values()}))
            places = {node: FIRST_NAMED + queues.index(str(queue)) for node, queue in named.items()}
            found = self._routes[known.plan.hash] = (queues, msgspec.msgpack.encode(places) if places else "")
        return found
