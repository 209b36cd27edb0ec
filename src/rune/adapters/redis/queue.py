"""Queue on Redis Streams: one consumer group, three priority lanes, and reclaiming of entries of dead workers.

An entry that its worker has not renewed for IDLE_S is delivered to another worker. A Redis Cluster rejects a command
with keys of several slots, even if one server has them all: there each partition has a read and a connection of its
own. The reads stay open while their entries are wanted, so a delivery costs one command as on a single server.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import time
from collections import deque
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

from rune.adapters.redis.client import Client, RedirectionError, RedisError
from rune.adapters.redis.cluster import ClusterClient
from rune.adapters.redis.dead_letters import RedisDeadLetters
from rune.adapters.redis.encoding import KeySpace
from rune.adapters.redis.streams import GROUP, Entry, Streams
from rune.core.definition.model import DEFAULT_QUEUE
from rune.core.execution.token import Path, Token
from rune.ports.inspection import QueueDepth
from rune.ports.journal import StoreUnavailableError
from rune.ports.queue import (
    LANES,
    Delivery,
    Route,
    SentCallback,
    default_route,
    ignore_sent,
    is_sibling,
    lanes_at,
)
from rune.ports.state import LEASE_MS

log = logging.getLogger("rune.queue")

IDLE_S = LEASE_MS / 1000
"""An entry that was not renewed for this long may be reclaimed by another worker."""

RETRY_DELAY_S = 0.5
"""Delay between attempts while the server is unavailable."""

MAX_BLOCK_S = 1.0
"""Longest blocking read; delayed entries are checked this often."""

DISCOVERY_PERIOD_S = 60.0
"""Delay between two searches for queues that this process does not know."""

SCAN_COUNT = 1_000

MIN_WAITING = 8
"""Waiting slots from which on all lanes are read together. A worker keeps at least twice as many while it is idle."""

REPLY_TIMEOUT_S = 3.0
"""A connection without any reply for this long is given up. A read blocks for a second at most."""


class QueueDepthReader:
    """Reads the depth of every queue. Queues are found by their streams, so unserved ones are included."""

    def __init__(self, client: Client, keys: KeySpace, queues: Sequence[str] = ()) -> None:
        self._client = client
        self._keys = keys
        self._queues = {DEFAULT_QUEUE, *queues}
        self._next_discovery = 0.0

    async def read(self) -> list[QueueDepth]:
        """Return the depth of each queue."""
        if time.monotonic() >= self._next_discovery:
            self._next_discovery = time.monotonic() + DISCOVERY_PERIOD_S
            self._queues |= await self._discover()
        seconds, micros = await self._client.call("TIME")
        now = int(seconds) * 1000 + int(micros) // 1000
        return list(await asyncio.gather(*(self._depth(each, now) for each in sorted(self._queues))))

    async def dead_letters(self) -> int:
        """Return the number of dead letters."""
        return await RedisDeadLetters(self._client, self._keys).count()

    async def _discover(self) -> set[str]:
        pattern = re.compile(rb".*:stream:(.+):(?:" + "|".join(LANES).encode() + rb")")
        found: set[str] = set()
        for server in await self._client.servers():
            found |= await self._discover_on(server, pattern)
        return found

    async def _discover_on(self, server: Client, pattern: re.Pattern[bytes]) -> set[str]:
        found: set[str] = set()
        cursor: Any = 0
        while True:
            cursor, names = await server.call(
                "SCAN",
                cursor,
                "MATCH",
                f"{self._keys.prefix}:{{p*}}:stream:*",
                "COUNT",
                SCAN_COUNT,
                "TYPE",
                "stream",
            )
            found.update(match[1].decode() for name in names if (match := pattern.fullmatch(name)))
            if int(cursor) == 0:
                return found

    async def _depth(self, queue: str, now: int) -> QueueDepth:
        streams = [
            self._keys.stream(part, queue, lane) for part in range(self._keys.partitions) for lane in LANES
        ]
        sizes = await asyncio.gather(*(self._client.call("XLEN", each) for each in streams))
        busy = [(stream, size) for stream, size in zip(streams, sizes, strict=True) if size]
        counts = await asyncio.gather(*(self._stream_depth(stream, size) for stream, size in busy))
        firsts = [first for _, _, first in counts if first is not None]
        return QueueDepth(
            queue=queue,
            waiting=sum(waiting for waiting, _, _ in counts),
            held=sum(held for _, held, _ in counts),
            age=max(0, now - min(firsts)) / 1000 if firsts else 0.0,
        )

    async def _stream_depth(self, stream: str, size: int) -> tuple[int, int, int | None]:
        """Return the numbers of waiting and held entries, and when the oldest waiting entry was added."""
        try:
            groups = await self._client.call("XINFO", "GROUPS", stream)
        except RedisError:
            # The stream was deleted since its length was read.
            groups = []
        held, start = 0, b"-"
        for raw in groups:
            group = dict(zip(raw[::2], raw[1::2], strict=True))
            if group.get(b"name") == GROUP.encode():
                held, start = int(group[b"pending"]), b"(" + group[b"last-delivered-id"]
        first = await self._client.call("XRANGE", stream, start, "+", "COUNT", 1)
        waiting = max(0, size - held)
        return waiting, held, int(first[0][0].partition(b"-")[0]) if first and waiting else None


class RedisQueue:
    """Reads only while a call of `receive` waits, so that a worker takes no delivery without a free slot."""

    def __init__(
        self,
        client: Client,
        blocking: Client,
        streams: Streams,
        *,
        route: Route = default_route,
        idle: float = IDLE_S,
        depths: QueueDepthReader | None = None,
        on_sent: SentCallback = ignore_sent,
        renews: bool = True,
    ) -> None:
        """Unless it `renews` what it holds, a thread does."""
        self._client = client
        self._blocking = blocking
        self._streams = streams
        self._reads = PartitionReads(client, streams) if isinstance(client, ClusterClient) else None
        self._route = route
        self._idle = idle
        self._depths = depths
        self._tags = count(1)
        self._held: dict[int, Entry] = {}
        self._tokens: dict[tuple[str, int, Path], int] = {}
        self._buffer: deque[Delivery] = deque()
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._wanted = asyncio.Event()
        self._loops: list[asyncio.Task[None]] = []
        self._turn = 0
        self._paused = False
        self._closing = False
        self._blocking_id = 0
        """Client id of the blocking connection on the server."""
        self._next_restore = 0.0
        self._next_reclaim = 0.0
        self._on_sent = on_sent
        self._renews = renews

    async def send(self, execution: str, tokens: Sequence[Token], priority: int = 5) -> None:
        if tokens:
            queues = [await self._route(execution, token) for token in tokens]
            await self._streams.add(execution, tokens, priority, queues)
            self._on_sent(execution, tokens)

    async def receive(self) -> Delivery:
        if not self._loops:
            self._loops = [asyncio.create_task(self._read_loop())]
            if self._renews:
                self._loops.append(asyncio.create_task(self._renew_loop()))
        while self._paused or not self._buffer:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(waiter)
            self._wanted.set()
            try:
                await waiter
            except asyncio.CancelledError:
                self._wake_waiting()
                raise
        found = self._buffer.popleft()
        if self._waiting:
            # While this delivery was in the buffer, it counted for a slot that still waits.
            self._wanted.set()
        return found

    async def receive_more(self, delivery: Delivery, limit: int) -> list[Delivery]:
        """Read further entries of the stream that the delivery is from. Those of other nodes go to the slots that
        wait, or to this one once its delivery is processed."""
        entry = self._held.get(delivery.tag)
        if entry is None or not entry.id or self._paused or self._closing:
            return []
        more = [self._hold(each) for each in await self._streams.read_one(entry.stream, limit)]
        self._buffer.extend(each for each in more if not is_sibling(delivery, each))
        self._wake_waiting()
        self._wanted.set()  # the loop that reads gives them back if the queue was paused meanwhile
        return [each for each in more if is_sibling(delivery, each)]

    async def ack(self, delivery: Delivery) -> None:
        entry = self._release(delivery.tag)
        if entry is not None:
            await self._streams.delete(entry)

    async def requeue(self, delivery: Delivery, delay: float = 0.0) -> None:
        entry = self._held.get(delivery.tag)
        if entry is None:
            return
        if delay <= 0:
            await self._streams.requeue(entry)
        else:
            seconds, micros = await self._client.call("TIME")
            due = int(seconds) * 1000 + int(micros) // 1000 + round(delay * 1000)
            await self._streams.delay(entry, due)
            self._next_restore = min(self._next_restore, time.monotonic() + delay)
        # Last, so that the caller can retry if the server was unavailable.
        self._release(delivery.tag)

    async def dead_letter(self, delivery: Delivery, code: str, message: str) -> None:
        """Move the delivery to the dead letters of its partition, with the reason."""
        entry = self._held.get(delivery.tag)
        if entry is None:
            return
        log.error("token of %s on %s is a dead letter: %s: %s", entry.execution, entry.stream, code, message)
        await self._streams.dead_letter(entry, code, message)
        # Last, so that the entry stays held if the server was unavailable.
        self._release(delivery.tag)

    async def dead_letters(self) -> int | None:
        return None if self._depths is None else await self._depths.dead_letters()

    async def depths(self) -> list[QueueDepth]:
        return [] if self._depths is None else await self._depths.read()

    def is_held(self, execution: str, node: int, path: Path) -> Entry | None:
        """Return the entry of a token that was delivered here and is not acknowledged yet."""
        tag = self._tokens.get((execution, node, path))
        return None if tag is None else self._held.get(tag)

    def release_entry(self, entry: Entry) -> None:
        """Forget an entry that the function which applied its decision has deleted."""
        tag = self._tokens.get((entry.execution, *entry.token.key))
        if tag is not None and self._held.get(tag) is entry:
            self._release(tag)

    def keep(self, entry: Entry, token: Token) -> int:
        """Hold a token that follows from that of an entry and is in no stream; return the tag of its delivery."""
        tag = next(self._tags)
        self._held[tag] = Entry(entry.stream, b"", entry.execution, token)
        self._tokens[(entry.execution, *token.key)] = tag
        return tag

    def _release(self, tag: int) -> Entry | None:
        entry = self._held.pop(tag, None)
        if entry is not None:
            key = (entry.execution, *entry.token.key)
            if self._tokens.get(key) == tag:
                del self._tokens[key]
        return entry

    async def pause(self) -> None:
        """The loop that reads gives back what no worker received, also the entries of a read in progress, which takes
        at most a second."""
        self._paused = True
        self._wanted.set()

    async def resume(self) -> None:
        self._paused = False
        self._wake_waiting()
        self._wanted.set()

    async def _requeue_buffered(self) -> None:
        while self._paused and self._buffer:
            delivery = self._buffer.popleft()
            try:
                await self.requeue(delivery)
            except (StoreUnavailableError, RedisError):
                # Still held: it would be renewed, and no worker would receive it.
                self._buffer.appendleft(delivery)
                raise

    async def close(self) -> None:
        """Requeue deliveries that no worker received. A read in progress is awaited first, because its entries would
        stay pending otherwise."""
        self._closing = True
        self._wanted.set()
        if self._loops:
            with contextlib.suppress(StoreUnavailableError, RedisError):
                if self._reads is None:
                    await self._client.call("CLIENT", "UNBLOCK", self._blocking_id)
                else:
                    await self._reads.interrupt()
            await asyncio.wait(self._loops[:1], timeout=2 * MAX_BLOCK_S)
        for each in self._loops:
            each.cancel()
        await asyncio.gather(*self._loops, return_exceptions=True)
        with contextlib.suppress(StoreUnavailableError):
            if self._reads is not None:
                self._take(await self._reads.stop())
                await self._reads.close()
            for delivery in self._buffer:
                await self.requeue(delivery)
            if self._loops:
                await self._streams.leave()

    def _wake_waiting(self) -> None:
        """Wake one waiting call of `receive` per buffered delivery."""
        available = 0 if self._paused else len(self._buffer)
        while available and self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                available -= 1

    def _take(self, entries: Sequence[Entry]) -> None:
        self._buffer.extend(map(self._hold, entries))
        self._wake_waiting()

    def _hold(self, entry: Entry) -> Delivery:
        tag = next(self._tags)
        self._held[tag] = entry
        self._tokens[(entry.execution, *entry.token.key)] = tag
        return Delivery(entry.execution, entry.token, tag, entry.again, entry.accepted)

    def _want(self) -> int:
        while self._waiting and self._waiting[0].done():
            self._waiting.popleft()
        return 0 if self._paused else len(self._waiting) - len(self._buffer)

    async def _read_loop(self) -> None:
        await self._attempt(self._streams.make_groups)
        while not self._closing:
            want = self._want()
            if self._paused and self._buffer:
                await self._attempt(self._requeue_buffered)
                continue
            if want <= 0:
                self._wanted.clear()
                if self._reads is not None and self._reads.open:
                    await self._attempt(self._end_reads)
                await self._wanted.wait()
                continue
            await self._attempt(lambda want=want: self._read(want))  # type: ignore[misc]

    async def _attempt(self, action: Callable[[], object]) -> None:
        """Run an action; log a failure and wait before the caller tries again."""
        try:
            await action()  # type: ignore[misc]
        except StoreUnavailableError as error:
            log.warning("the queue is unavailable: %s", error.message)
            self._blocking_id = 0
            await asyncio.sleep(RETRY_DELAY_S)
        except Exception:
            log.exception("reading the queue failed")
            await asyncio.sleep(RETRY_DELAY_S)

    async def _read(self, want: int) -> None:
        now = time.monotonic()
        if now >= self._next_restore:
            self._next_restore = now + MAX_BLOCK_S
            await self._streams.restore_delayed()
        if now >= self._next_reclaim:
            self._next_reclaim = now + self._idle / 4
            self._take(await self._streams.reclaim(round(self._idle * 1000), want))
            if self._want() <= 0:
                return
        # Few slots wait: the lanes take turns in being read first. Otherwise a single call reads them all or waits.
        if want < MIN_WAITING and await self._read_lanes(want):
            return
        if self._reads is not None:
            if not self._closing:
                left = min(self._next_restore, self._next_reclaim) - time.monotonic()
                self._take(await self._reads.wait(max(1, round(left * 1000)), want))
            return
        if not self._blocking_id:
            self._blocking_id = await self._blocking.call("CLIENT", "ID")
        if self._closing:
            return
        left = min(self._next_restore, self._next_reclaim) - time.monotonic()
        self._take(await self._streams.wait(self._blocking, round(left * 1000), want))

    async def _end_reads(self) -> None:
        """End the reads of the partitions, which would take entries for which no slot waits."""
        assert self._reads is not None
        self._take(await self._reads.stop())

    async def _read_lanes(self, want: int) -> bool:
        """Read new entries of the first lane that has some; return whether there were any."""
        for lane in self._order():
            found = await self._streams.read(lane, want)
            if found:
                self._take(found)
                return True
        return False

    def _order(self) -> tuple[str, ...]:
        self._turn += 1
        return tuple(LANES[lane] for lane in lanes_at(self._turn))

    async def _renew_loop(self) -> None:
        """Renew held entries, so that entries of long-running nodes are not reclaimed."""
        while True:
            await asyncio.sleep(self._idle / 3)
            await self._attempt(lambda: self._streams.renew(self.held_entries()))

    def held_entries(self) -> list[Entry]:
        """Return the entries that were delivered here and not acknowledged yet. May be called in any thread."""
        return list(self._held.copy().values())


class _Reader:
    """A connection for blocking reads, and its id on the server."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.client = Client(url, deadline=REPLY_TIMEOUT_S)
        self.id = 0


class PartitionReads:
    """The open reads of one consumer."""

    def __init__(self, cluster: ClusterClient, streams: Streams) -> None:
        self._cluster = cluster
        self._streams = streams
        self._readers: dict[str, _Reader] = {}
        self._reads: dict[str, asyncio.Task[list[Entry]]] = {}
        self._resting: dict[str, float] = {}

    @property
    def open(self) -> bool:
        """Whether there are reads that may still take entries."""
        return bool(self._reads)

    async def wait(self, ms: int, want: int) -> list[Entry]:
        """Wait up to `ms` for new entries of any partition. Raise if no partition can be read."""
        now = asyncio.get_running_loop().time()
        each = max(1, want // len(self._streams.all))
        for group in self._streams.groups:
            name = group[0]
            if name not in self._reads and self._resting.get(name, 0.0) <= now:
                self._reads[name] = asyncio.create_task(self._read(group, each, max(1, ms)))
        if not self._reads:
            raise StoreUnavailableError("no server of the Redis Cluster can be read")
        await asyncio.wait(self._reads.values(), timeout=ms / 1000, return_when=asyncio.FIRST_COMPLETED)
        return self._collect()

    async def interrupt(self) -> None:
        """Let the open reads return at once."""
        readers = [self._readers[name] for name in self._reads if name in self._readers]
        calls = (self._cluster.call_on(each.url, "CLIENT", "UNBLOCK", each.id) for each in readers)
        for reply in await asyncio.gather(*calls, return_exceptions=True):
            if isinstance(reply, BaseException) and not isinstance(reply, StoreUnavailableError | RedisError):
                raise reply

    async def stop(self) -> list[Entry]:
        """End the open reads and return what they have taken."""
        if not self._reads:
            return []
        await self.interrupt()
        await asyncio.wait(self._reads.values())
        return self._collect()

    async def close(self) -> None:
        for task in self._reads.values():
            task.cancel()
        await asyncio.gather(*self._reads.values(), return_exceptions=True)
        self._reads.clear()
        for each in self._readers.values():
            await each.client.close()

    def _collect(self) -> list[Entry]:
        found: list[Entry] = []
        failed: BaseException | None = None
        for name, task in list(self._reads.items()):
            if not task.done():
                continue
            del self._reads[name]
            error = task.exception()
            if error is None:
                found += task.result()
            elif isinstance(error, StoreUnavailableError | RedirectionError):
                log.info("the streams of a partition cannot be read: %s", error.message)
                self._resting[name] = asyncio.get_running_loop().time() + RETRY_DELAY_S
            else:
                failed = error
        # Entries that other reads have taken are not lost because of it; the next read fails again.
        if failed is not None and not found:
            raise failed
        return found

    async def _read(self, group: Sequence[str], each: int, ms: int) -> list[Entry]:
        name = group[0]
        try:
            reader = self._readers.get(name)
            if reader is None:
                reader = self._readers[name] = _Reader(await self._cluster.url_of(name))
                reader.id = int(await reader.client.call("CLIENT", "ID"))
            return await self._streams.read_group(reader.client, group, each, ("BLOCK", ms))
        except (StoreUnavailableError, RedirectionError) as error:
            self._cluster.note(error)
            reader = self._readers.pop(name, None)
            if reader is not None:
                await reader.client.close()
            raise
