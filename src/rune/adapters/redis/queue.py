"""Queue on Redis Streams: one consumer group, three priority lanes, and reclaiming of entries of dead workers.

An entry that its worker has not renewed for IDLE_S is delivered to another worker.
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

from rune.adapters.redis.client import Client, RedisError
from rune.adapters.redis.dead_letters import RedisDeadLetters
from rune.adapters.redis.keys import KeySpace
from rune.adapters.redis.streams import GROUP, Entry, Streams
from rune.core.execution.token import Path, Token
from rune.ports.inspection import QueueDepth
from rune.ports.journal import StoreUnavailableError
from rune.ports.queue import (
    DEFAULT_QUEUE,
    LANES,
    Delivery,
    Route,
    SentCallback,
    default_route,
    ignore_sent,
    lanes_at,
)

log = logging.getLogger("rune.queue")

IDLE_S = 7.5
"""An entry that was not renewed for this long may be reclaimed by another worker."""

RETRY_DELAY_S = 0.5
"""Delay between attempts while the server is unavailable."""

MAX_BLOCK_S = 1.0
"""Longest blocking read; delayed entries are checked this often."""

DISCOVERY_PERIOD_S = 60.0
"""Delay between two searches for queues that this process does not know."""

SCAN_COUNT = 1_000


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
        cursor: Any = 0
        while True:
            cursor, names = await self._client.call(
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
    ) -> None:
        self._client = client
        self._blocking = blocking
        self._streams = streams
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
        self._closing = False
        self._blocking_id = 0
        """Client id of the blocking connection on the server."""
        self._next_restore = 0.0
        self._next_reclaim = 0.0
        self.on_sent: SentCallback = ignore_sent
        self.renews = True
        """Whether held entries are renewed here; otherwise a thread renews them."""

    async def send(self, execution: str, tokens: Sequence[Token], priority: int = 5) -> None:
        if tokens:
            queues = [await self._route(execution, token) for token in tokens]
            await self._streams.add(execution, tokens, priority, queues)
            self.on_sent(execution, tokens)

    async def receive(self) -> Delivery:
        if not self._loops:
            self._loops = [asyncio.create_task(self._read_loop())]
            if self.renews:
                self._loops.append(asyncio.create_task(self._renew_loop()))
        while not self._buffer:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(waiter)
            self._wanted.set()
            try:
                await waiter
            except asyncio.CancelledError:
                self._wake_waiting()
                raise
        return self._buffer.popleft()

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

    def _release(self, tag: int) -> Entry | None:
        entry = self._held.pop(tag, None)
        if entry is not None:
            key = (entry.execution, *entry.token.key)
            if self._tokens.get(key) == tag:
                del self._tokens[key]
        return entry

    async def close(self) -> None:
        """Requeue deliveries that no worker received. A read in progress is awaited first, because its entries would
        stay pending otherwise."""
        self._closing = True
        self._wanted.set()
        if self._loops:
            with contextlib.suppress(StoreUnavailableError, RedisError):
                await self._client.call("CLIENT", "UNBLOCK", self._blocking_id)
            await asyncio.wait(self._loops[:1], timeout=2 * MAX_BLOCK_S)
        for each in self._loops:
            each.cancel()
        await asyncio.gather(*self._loops, return_exceptions=True)
        with contextlib.suppress(StoreUnavailableError):
            for delivery in self._buffer:
                await self.requeue(delivery)
            await self._streams.leave()

    def _wake_waiting(self) -> None:
        """Wake one waiting call of `receive` per buffered delivery."""
        available = len(self._buffer)
        while available and self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                available -= 1

    def _take(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            tag = next(self._tags)
            self._held[tag] = entry
            self._tokens[(entry.execution, *entry.token.key)] = tag
            self._buffer.append(Delivery(entry.execution, entry.token, tag, entry.again))
        self._wake_waiting()

    def _want(self) -> int:
        while self._waiting and self._waiting[0].done():
            self._waiting.popleft()
        return len(self._waiting) - len(self._buffer)

    async def _read_loop(self) -> None:
        await self._attempt(self._streams.make_groups)
        while not self._closing:
            want = self._want()
            if want <= 0:
                self._wanted.clear()
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
        for lane in self._order():
            found = await self._streams.read(lane, want)
            self._take(found)
            want -= len(found)
            if want <= 0:
                return
            if found:
                return
        if not self._blocking_id:
            self._blocking_id = await self._blocking.call("CLIENT", "ID")
        if self._closing:
            return
        left = min(self._next_restore, self._next_reclaim) - time.monotonic()
        self._take(await self._streams.wait(self._blocking, round(left * 1000)))

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
