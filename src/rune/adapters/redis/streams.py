"""Redis Streams of the queue: reading, renewing, reclaiming and deleting entries, and sending from Lua functions.

When the queue is on the same server as the state, the function that applies a decision adds the emitted tokens to their
streams and deletes the entry that delivered the token, in one atomic step (`StreamSender`). A worker that was killed
leaves its consumer name in every group it read; `ConsumerCleaner` removes such names.
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
from rune.adapters.redis.dead_letters import MAX_LETTERS, execution_of, letter_fields
from rune.adapters.redis.encoding import CachedExecution, KeySpace, decode_token, encode_token
from rune.codec.decode import MalformedDataError, decode_text
from rune.codec.messages import check_hint, decode_record
from rune.core.definition.model import DEFAULT_QUEUE
from rune.core.execution.decision import Decision
from rune.core.execution.fact import RaceWinner
from rune.core.execution.token import Path, Token
from rune.ports.journal import ExecutionRecord, StoreUnavailableError
from rune.ports.queue import LANES, failure_of, lane_of

log = logging.getLogger("rune.redis")

BAD_MESSAGE = "BAD_MESSAGE"
GROUP = "workers"
MAX_BATCH = 500

IDLE_CONSUMER_S = 600.0
"""How long a consumer may be idle before its name is removed; its entries were reclaimed long before."""

CLEANUP_PERIOD_S = 300.0
SCAN_COUNT = 1_000

PARTITIONS_READ = 4
"""Partitions of a Redis Cluster that a worker with few free slots reads at once."""

EXECUTION_KEYS = 5
"""Number of keys of an execution that a function takes before the keys of streams."""

FIRST_NAMED_QUEUE_KEY = 8
FIRST_STREAM_KEY = 9
"""Position of the first stream key after the keys that `install` takes."""

NOTHING_SENT = ("", "", "")


class Entry(msgspec.Struct, gc=False):
    """A stream entry that was delivered to this consumer and is not deleted yet. Without an `id` it is the place of a
    token that a worker kept: nothing is in the stream, and a requeue adds it."""

    stream: str
    id: bytes
    execution: str
    token: Token
    again: bool = False
    accepted: ExecutionRecord | None = None


class Streams:
    """The streams that one consumer reads: those of the queues it serves."""

    def __init__(
        self, client: Client, keys: KeySpace, consumer: str, queues: Sequence[str] = (DEFAULT_QUEUE,)
    ) -> None:
        self._client = client
        self._keys = keys
        self._consumer = consumer
        self._queues = tuple(queues)
        self._busy = 1
        self._first_part = 0
        parts = range(keys.partitions)
        self._lanes = {
            lane: [keys.stream(part, queue, lane) for queue in self._queues for part in parts]
            for lane in LANES
        }
        self.groups = [
            [keys.stream(part, queue, lane) for lane in LANES for queue in self._queues] for part in parts
        ]
        """The streams of each partition."""
        self.all = [stream for lane in LANES for stream in self._lanes[lane]]
        self._partitions = {
            keys.stream(part, queue, lane): part for part in parts for queue in self._queues for lane in LANES
        }

    async def make_groups(self, streams: Sequence[str] = ()) -> None:
        """Create the consumer group of the given streams or of all, unless it exists."""
        calls = (
            self._client.call("XGROUP", "CREATE", each, GROUP, "0", "MKSTREAM")
            for each in streams or self.all
        )
        for reply in await asyncio.gather(*calls, return_exceptions=True):
            if isinstance(reply, BaseException) and not _has_code(reply, "BUSYGROUP"):
                raise reply

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
        """Read about `want` new entries of one lane; not exactly, because COUNT applies to each stream."""
        each = max(1, math.ceil(want / self._busy))
        if self._client.clustered:
            found = await self._read_partitions(lane, want)
        else:
            found = await self.read_group(self._client, self._lanes[lane], each)
        if found:
            self._busy = len({entry.stream for entry in found})
        return found

    async def read_one(self, stream: str, most: int) -> list[Entry]:
        """Read at most this many new entries of one stream."""
        return await self.read_group(self._client, [stream], most)

    async def _read_partitions(self, lane: str, want: int) -> list[Entry]:
        """Read new entries of one lane on a Redis Cluster, of a few partitions at a time, from another one on each
        time, until there are enough."""
        found: list[Entry] = []
        count = self._keys.partitions
        self._first_part = (self._first_part + 1) % count
        for first in range(0, count, PARTITIONS_READ):
            parts = [
                (self._first_part + each) % count
                for each in range(first, min(first + PARTITIONS_READ, count))
            ]
            groups = ([self._keys.stream(part, queue, lane) for queue in self._queues] for part in parts)
            calls = (self.read_group(self._client, group, max(1, want // len(parts))) for group in groups)
            for entries in await asyncio.gather(*calls, return_exceptions=True):
                if isinstance(entries, list):
                    found += entries
                elif not isinstance(entries, StoreUnavailableError):
                    raise entries
            if len(found) >= want:
                break
        return found

    async def wait(self, blocking: Client, ms: int, want: int) -> list[Entry]:
        """Wait up to `ms` for new entries of any lane, about `want` at most."""
        each = max(1, want // len(self.all))
        return await self.read_group(blocking, self.all, each, ("BLOCK", max(1, ms)))

    async def read_group(
        self, client: Client, streams: Sequence[str], each: int, more: tuple[str | int, ...] = ()
    ) -> list[Entry]:
        """Read up to `each` new entries of each stream."""
        ids = (">",) * len(streams)
        command = (
            "XREADGROUP",
            "GROUP",
            GROUP,
            self._consumer,
            "COUNT",
            each,
            *more,
            "STREAMS",
            *streams,
            *ids,
        )
        try:
            reply = await client.call(*command)
        except RedisError as error:
            if not _has_code(error, "NOGROUP"):
                raise
            # The server lost its data.
            await self.make_groups(streams if self._client.clustered else ())
            return []
        found: list[Entry] = []
        for stream, rows in reply or ():
            found += await self._decode(stream.decode(), rows)
        return found

    async def reclaim(self, idle: int, most: int) -> list[Entry]:
        """Claim entries whose consumer has not renewed them for `idle` ms."""
        calls = (
            self._client.call("XAUTOCLAIM", each, GROUP, self._consumer, idle, "0", "COUNT", most)
            for each in self.all
        )
        found: list[Entry] = []
        for stream, reply in zip(self.all, await asyncio.gather(*calls, return_exceptions=True), strict=True):
            if isinstance(reply, BaseException):
                away = self._client.clustered and isinstance(reply, StoreUnavailableError)
                if not away and not _has_code(reply, "NOGROUP"):
                    raise reply
                continue
            found += await self._decode(stream, reply[1], again=True)
        return found

    async def _decode(self, stream: str, rows: Any, *, again: bool = False) -> list[Entry]:
        """Return the entries of a batch. A malformed one becomes a dead letter, and the others go on."""
        found: list[Entry] = []
        malformed: list[tuple[bytes, Sequence[bytes], Exception]] = []
        for id, fields in rows:
            if fields is not None:
                try:
                    found.append(self._entry(stream, id, fields, again=again))
                except Exception as error:
                    malformed.append((id, fields, error))
        if malformed:
            await asyncio.gather(*(self._dead_letter_malformed(stream, *each) for each in malformed))
        return found

    def _entry(self, stream: str, id: bytes, fields: Sequence[bytes], *, again: bool) -> Entry:
        values = dict(zip(fields[::2], fields[1::2], strict=True))
        if b"x" not in values or b"t" not in values:
            raise MalformedDataError("the entry has no execution and token")
        execution, token = decode_text(values[b"x"]), decode_token(values[b"t"])
        check_hint(execution, token)
        if self._keys.partition(execution) != self._partitions[stream]:
            raise MalformedDataError("the execution belongs to another partition")
        # An entry that was delivered before may be older than the end and the removal of its execution.
        record = None if again else values.get(b"a")
        accepted = None if record is None else decode_record(execution, record)
        return Entry(stream, id, execution, token, again, accepted)

    async def _dead_letter_malformed(
        self, stream: str, id: bytes, fields: Sequence[bytes], error: Exception
    ) -> None:
        reason = failure_of(error)[1]
        execution = execution_of(fields) or "an unknown execution"
        log.error(
            "entry %s of %s on %s is a dead letter: %s: %s",
            id.decode(),
            execution,
            stream,
            BAD_MESSAGE,
            reason,
        )
        try:
            await self._dead_letter(stream, id, fields, BAD_MESSAGE, reason)
        except (StoreUnavailableError, RedisError) as trouble:
            # It stays pending, and is buried by the worker that reclaims it.
            log.warning("entry %s of %s could not be buried: %s", id.decode(), stream, trouble.message)

    async def dead_letter(self, entry: Entry, code: str, reason: str) -> None:
        """Move an entry, or a token that was kept, to the dead letters."""
        fields = (b"x", entry.execution.encode(), b"t", encode_token(entry.token))
        await self._dead_letter(entry.stream, entry.id, fields, code, reason)

    async def _dead_letter(
        self, stream: str, id: bytes, fields: Sequence[bytes], code: str, reason: str
    ) -> None:
        dead = self._keys.dead(self._partitions[stream])
        letter = letter_fields(stream, fields, code, reason)
        await self._client.run("dead_letter", [stream, dead], GROUP, id, MAX_LETTERS, *letter)

    async def renew(self, held: Sequence[Entry]) -> None:
        """Reset the idle time of entries that this consumer still works on."""
        by_stream: dict[str, list[bytes]] = {}
        for entry in held:
            if entry.id:
                by_stream.setdefault(entry.stream, []).append(entry.id)
        claims = (
            self._client.call(
                "XCLAIM", stream, GROUP, self._consumer, 0, *ids[start : start + MAX_BATCH], "JUSTID"
            )
            for stream, ids in by_stream.items()
            for start in range(0, len(ids), MAX_BATCH)
        )
        await asyncio.gather(*claims)

    async def delete(self, entry: Entry) -> None:
        """Delete and acknowledge an entry. Deleted first: a pending entry that no longer exists is never delivered."""
        if not entry.id:
            return
        deleted = self._client.call("XDEL", entry.stream, entry.id)
        acknowledged = self._client.call("XACK", entry.stream, GROUP, entry.id)
        await asyncio.gather(deleted, acknowledged)

    async def requeue(self, entry: Entry) -> None:
        """Move an entry to the end of its stream."""
        again = self._client.call(
            "XADD", entry.stream, "*", "x", entry.execution, "t", encode_token(entry.token)
        )
        await asyncio.gather(again, self.delete(entry))

    async def delay(self, entry: Entry, due: int) -> None:
        """Remove an entry from its stream until `due`, in ms since the epoch."""
        part = self._keys.partition(entry.execution)
        queue, key = self._locate(part, entry.stream)
        name = entry.execution.encode()
        number = int(entry.id.replace(b"-", b"") or 0)
        member = b"%d %d %d %b%b" % (key, number, len(name), name, encode_token(entry.token))
        await self._client.call("ZADD", self._keys.later(part, queue), due, member)
        await self.delete(entry)

    def _locate(self, part: int, stream: str) -> tuple[str, int]:
        """Return the queue of a stream and the position of its key in the call that restores delayed entries."""
        for queue in self._queues:
            lanes = self._queue_streams(part, queue)
            if stream in lanes:
                return queue, lanes.index(stream) + 2
        raise ValueError(f"{stream} is not a stream of this consumer")

    def _queue_streams(self, part: int, queue: str) -> list[str]:
        return [self._keys.stream(part, queue, lane) for lane in LANES]

    async def restore_delayed(self) -> int:
        """Move delayed entries that are due back to their streams and return how many."""
        moves = (
            self._client.run(
                "delay",
                [self._keys.later(part, queue), *self._queue_streams(part, queue), self._keys.dead(part)],
                0,
                MAX_BATCH,
                MAX_LETTERS,
            )
            for part in range(self._keys.partitions)
            for queue in self._queues
        )
        return sum(await self._client.gather(*moves))

    async def leave(self) -> None:
        """Remove this consumer from the groups in which it has no pending entries."""
        calls = (self._client.call("XPENDING", each, GROUP, "-", "+", 1, self._consumer) for each in self.all)
        pending = await asyncio.gather(*calls, return_exceptions=True)
        removals = (
            self._client.call("XGROUP", "DELCONSUMER", stream, GROUP, self._consumer)
            for stream, found in zip(self.all, pending, strict=True)
            if found == []
        )
        await asyncio.gather(*removals)


def _has_code(error: BaseException, code: str) -> bool:
    return isinstance(error, RedisError) and error.code == code


class ConsumerCleaner:
    """Removes consumer names of dead workers from the groups of all queues. Any number of processes may run it."""

    def __init__(self, client: Client, keys: KeySpace) -> None:
        self._client = client
        self._keys = keys
        self._next_run = 0.0

    async def clean(self) -> None:
        """Remove idle consumers if CLEANUP_PERIOD_S has passed. Errors are logged only: no work depends on it."""
        if time.monotonic() < self._next_run:
            return
        self._next_run = time.monotonic() + CLEANUP_PERIOD_S
        try:
            removed = await self.forget(IDLE_CONSUMER_S)
        except RedisError as error:
            log.warning("names of dead consumers could not be removed: %s", error.message)
        else:
            if removed:
                log.info("removed %d names of dead consumers", removed)

    async def forget(self, idle: float) -> int:
        """Remove consumers without pending entries that have not read for `idle` seconds; return how many."""
        removed = 0
        for server in await self._client.servers():
            removed += await self._forget_on(server, round(idle * 1000))
        return removed

    async def _forget_on(self, server: Client, ms: int) -> int:
        removed = 0
        cursor: Any = 0
        pattern = f"{self._keys.prefix}:{{p*}}:stream:*"
        while True:
            cursor, streams = await server.call(
                "SCAN", cursor, "MATCH", pattern, "COUNT", SCAN_COUNT, "TYPE", "stream"
            )
            calls = (self._client.run("forget", [each.decode()], GROUP, ms) for each in streams)
            removed += sum(map(int, await asyncio.gather(*calls)))
            if int(cursor) == 0:
                return removed


class HeldEntries(Protocol):
    """The queue's record of entries that were delivered to this process."""

    def is_held(self, execution: str, node: int, path: Path) -> Entry | None:
        """Return the entry of a token that was delivered here and is not acknowledged yet."""

    def release_entry(self, entry: Entry) -> None:
        """Forget an entry that a Lua function has deleted."""

    def keep(self, entry: Entry, token: Token) -> int:
        """Hold a token that follows from that of an entry and is in no stream; return the tag of its delivery."""


class StreamSender:
    """Builds the keys and arguments with which Lua functions send tokens and delete entries."""

    def __init__(self, keys: KeySpace, held: HeldEntries | None = None) -> None:
        self._keys = keys
        self._held = held
        self._routes: dict[str, tuple[tuple[str, ...], bytes | str]] = {}

    def entry(self, execution: str, decisions: Sequence[Decision]) -> Entry | None:
        """Return the entry that delivered the token of the first decision. A race winner is recorded before its token
        runs, so that entry is still needed."""
        first = decisions[0]
        if self._held is None or type(first.fact) is RaceWinner:
            return None
        return self._held.is_held(execution, first.node, first.path)

    def release(self, entry: Entry | None) -> None:
        if entry is not None and self._held is not None:
            self._held.release_entry(entry)

    def keep(self, entry: Entry, token: Token) -> int:
        """Hold a token that follows from that of an entry and is in no stream; return the tag of its delivery."""
        return 0 if self._held is None else self._held.keep(entry, token)

    def keys(self, known: CachedExecution, entry: Entry | None = None) -> tuple[str, ...]:
        """Return the keys of a function that sends."""
        execution = known.accepted.id
        (default, *named), items = self._streams(known)
        served = default if entry is None else entry.stream
        return (*self._keys.of(execution)[:EXECUTION_KEYS], default, served, *named, *items)

    def _streams(self, known: CachedExecution) -> tuple[list[str], list[str]]:
        """Return the streams of the default and the named queues, for tokens outside and inside of fan-outs."""
        part, names = self._keys.partition(known.accepted.id), (DEFAULT_QUEUE, *self._named_queues(known)[0])
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
            return GROUP, self._named_queues(known)[1], first, *(each.id for each in more)
        return GROUP, self._named_queues(known)[1], first

    def initial_sends(
        self, known: CachedExecution, tokens: Sequence[Token]
    ) -> tuple[tuple[str, ...], list[int | bytes]]:
        """Return the streams that `install` takes after its own keys, and the tokens it adds to them."""
        own, items = self._streams(known)
        names = (DEFAULT_QUEUE, *self._named_queues(known)[0])
        sent: list[int | bytes] = []
        for token in tokens:
            queue = known.plan.nodes[token.node].node.queue or DEFAULT_QUEUE
            place = names.index(queue) + (len(own) if token.path else 0)
            sent += (FIRST_STREAM_KEY + place, encode_token(token))
        return (*own, *items), sent

    def _named_queues(self, known: CachedExecution) -> tuple[tuple[str, ...], bytes | str]:
        found = self._routes.get(known.plan.hash)
        if found is None:
            named = {
                each.index: each.node.queue
                for each in known.plan.nodes
                if each.node.queue not in (None, DEFAULT_QUEUE)
            }
            queues = tuple(sorted({str(each) for each in named.values()}))
            places = {node: FIRST_NAMED_QUEUE_KEY + queues.index(str(queue)) for node, queue in named.items()}
            found = self._routes[known.plan.hash] = (queues, msgspec.msgpack.encode(places) if places else "")
        return found
