"""Depths: how much waits in the streams of every queue, whoever serves it.

The queue on Redis Streams: a group of workers, three lanes, and what is in no hands for long is handed out again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from itertools import count
from typing import Any

from rune.adapters.redis.client import Client, RedisError
from rune.adapters.redis.keys import Keys
from rune.adapters.redis.streams import DEFAULT, GROUP, Entry, Streams
from rune.core.execution.token import Path, Token
from rune.ports.inspection import QueueDepth
from rune.ports.journal import StoreUnavailableError
from rune.ports.queue import LANES, Delivery, lanes_at

DISCOVERY_PERIOD_S = 60.0  # s between two looks for queues that nobody here has heard of
PAGE = 1_000


class QueueDepthReader:
    """A queue is known by its streams, so one that no worker serves is seen too."""

    def __init__(self, client: Client, keys: Keys, queues: Sequence[str] = ()) -> None:
        self._client = client
        self._keys = keys
        self._queues = {DEFAULT, *queues}
        self._look_at = 0.0

    async def read(self) -> list[QueueDepth]:
        """One for each queue."""
        if time.monotonic() >= self._look_at:
            self._look_at = time.monotonic() + DISCOVERY_PERIOD_S
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

    async def _depth(self, queue: str, now: int) -> QueueDepth:
        streams = [
            self._keys.stream(part, queue, lane) for part in range(self._keys.partitions) for lane in LANES
        ]
        sizes = await asyncio.gather(*(self._client.call("XLEN", each) for each in streams))
        busy = [(stream, size) for stream, size in zip(streams, sizes, strict=True) if size]
        looked = await asyncio.gather(*(self._stream(stream, size) for stream, size in busy))
        firsts = [first for _, _, first in looked if first is not None]
        return QueueDepth(
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


log = logging.getLogger("rune.queue")

IDLE_S = 30.0  # s: an entry that nobody renews for so long is somebody else's
RENEWAL_S = IDLE_S / 3
RETRY_DELAY_S = 0.5  # s, while the server is away
MAX_BLOCK_S = 1.0  # s: what others put off is looked for this often

Route = Callable[[str, Token], Awaitable[str]]
"""The name of the queue that a token of an execution belongs in."""


async def _default(execution: str, token: Token) -> str:
    return DEFAULT


class RedisQueue:
    """Reads only while somebody waits: a worker takes no delivery without a free slot."""

    def __init__(
        self,
        client: Client,
        blocking: Client,
        streams: Streams,
        *,
        route: Route = _default,
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
        self._blocked = 0  # what the server calls the connection that waits
        self._bring_at = 0.0
        self._reclaim_at = 0.0

    async def send(self, execution: str, tokens: Sequence[Token], priority: int = 5) -> None:
        if tokens:
            queues = [await self._route(execution, token) for token in tokens]
            await self._streams.add(execution, tokens, priority, queues)

    async def receive(self) -> Delivery:
        if not self._loops:
            self._loops = [asyncio.create_task(self._pump()), asyncio.create_task(self._keep())]
        while not self._buffer:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(waiter)
            self._wanted.set()
            try:
                await waiter
            except asyncio.CancelledError:
                self._call()
                raise
        return self._buffer.popleft()

    async def ack(self, delivery: Delivery) -> None:
        entry = self._release(delivery.tag)
        if entry is not None:
            await self._streams.let_go(entry)

    async def requeue(self, delivery: Delivery, delay: float = 0.0) -> None:
        entry = self._held.get(delivery.tag)
        if entry is None:
            return
        if delay <= 0:
            await self._streams.put_back(entry)
        else:
            seconds, micros = await self._client.call("TIME")
            due = int(seconds) * 1000 + int(micros) // 1000 + round(delay * 1000)
            await self._streams.put_off(entry, due)
            self._bring_at = min(self._bring_at, time.monotonic() + delay)
        self._release(delivery.tag)  # not before: where the server was away it can be tried again

    async def dead_letter(self, delivery: Delivery, code: str, message: str) -> None:
        """What it was about is in the journal."""
        await self.ack(delivery)

    async def depths(self) -> list[QueueDepth]:
        return [] if self._depths is None else await self._depths.read()

    def routes(self, route: Route) -> None:
        """Which queue a token belongs in."""
        self._route = route

    def is_held(self, execution: str, node: int, path: Path) -> Entry | None:
        """The entry of a token that was delivered here and is not let go."""
        tag = self._tokens.get((execution, node, path))
        return None if tag is None else self._held.get(tag)

    def release_entry(self, entry: Entry) -> None:
        """The act that ended its token has let it go already."""
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
        """Hand back what nobody took. A read that is under way is waited for: what it brings would be nobody's."""
        self._closing = True
        self._wanted.set()
        if self._loops:
            with contextlib.suppress(StoreUnavailableError, RedisError):
                await self._client.call("CLIENT", "UNBLOCK", self._blocked)
            await asyncio.wait(self._loops[:1], timeout=2 * MAX_BLOCK_S)
        for each in self._loops:
            each.cancel()
        await asyncio.gather(*self._loops, return_exceptions=True)
        with contextlib.suppress(StoreUnavailableError):
            for delivery in self._buffer:
                await self.requeue(delivery)
            await self._streams.leave()

    def _call(self) -> None:
        """Wake as many as there is work for."""
        calls = len(self._buffer)
        while calls and self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                calls -= 1

    def _take(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            tag = next(self._tags)
            self._held[tag] = entry
            self._tokens[(entry.execution, *entry.token.key)] = tag
            self._buffer.append(Delivery(entry.execution, entry.token, tag, entry.again))
        self._call()

    def _want(self) -> int:
        while self._waiting and self._waiting[0].done():
            self._waiting.popleft()
        return len(self._waiting) - len(self._buffer)

    async def _pump(self) -> None:
        await self._again(self._streams.make_groups)
        while not self._closing:
            want = self._want()
            if want <= 0:
                self._wanted.clear()
                await self._wanted.wait()
                continue
            await self._again(lambda want=want: self._read(want))  # type: ignore[misc]

    async def _again(self, act: Callable[[], object]) -> None:
        """Do something; while the server is away, wait for it."""
        try:
            await act()  # type: ignore[misc]
        except StoreUnavailableError as away:
            log.warning("the queue is away: %s", away.message)
            self._blocked = 0
            await asyncio.sleep(RETRY_DELAY_S)
        except Exception:
            log.exception("the queue stumbled")
            await asyncio.sleep(RETRY_DELAY_S)

    async def _read(self, want: int) -> None:
        now = time.monotonic()
        if now >= self._bring_at:
            self._bring_at = now + MAX_BLOCK_S
            await self._streams.bring()
        if now >= self._reclaim_at:
            self._reclaim_at = now + self._idle / 4
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
        if not self._blocked:
            self._blocked = await self._blocking.call("CLIENT", "ID")
        if self._closing:
            return
        left = min(self._bring_at, self._reclaim_at) - time.monotonic()
        self._take(await self._streams.wait(self._blocking, round(left * 1000)))

    def _order(self) -> tuple[str, ...]:
        self._turn += 1
        return tuple(LANES[lane] for lane in lanes_at(self._turn))

    async def _keep(self) -> None:
        """Renew what is in our hands, so that long work is not taken for lost."""
        while True:
            await asyncio.sleep(self._idle / 3)
            await self._again(lambda: self._streams.renew(list(self._held.values())))
