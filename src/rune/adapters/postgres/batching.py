"""Batches concurrent reads and writes: requests that arrive while a batch is in flight form the next batch.

A single request is sent at once. A thousand concurrent requests cost a few round trips and a few disk syncs instead of
a thousand.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Generic, Protocol, TypeVar

from rune.adapters.postgres.database import Database, OutOfLocksError, query
from rune.codec.facts import decode_fact, encode_path
from rune.core.execution.fact import NodeResult
from rune.core.execution.token import Path
from rune.ports.journal import StoreUnavailableError

LOOK_AHEAD_BATCHES = 4
"""How many batch sizes of pending entries are searched for entries that may be sent now."""

READ_LANES = 2
MAX_REQUESTS = 128
MAX_KEYS = 2_000


class Entry(Protocol):
    """A request of a batch and the future of its result."""

    future: asyncio.Future[Any]

    def names(self) -> Iterable[object]:
        """Return what this entry writes; two batches in flight never share a name."""


E = TypeVar("E", bound=Entry)
K = TypeVar("K")
V = TypeVar("V")
Admits = Callable[[E], bool]
"""Adds an entry to a batch and returns True, or returns False if the entry must wait for a later batch."""


class Batcher(Generic[E]):
    """Sends entries in batches, with up to `lanes` batches in flight, each on its own connection.

    `write` sends a batch in one transaction and returns one result or exception per entry. If it raises, the batch is
    split in halves and sent again, so that one invalid entry does not fail the others. `linger` is how many seconds a
    batch may wait for more entries when no caller waits for the result.
    """

    def __init__(
        self,
        write: Callable[[Sequence[E]], Awaitable[Sequence[object]]],
        new_batch: Callable[[], Admits[E]],
        *,
        lanes: int,
        most: int,
        linger: float = 0.0,
    ) -> None:
        self._write = write
        self._new_batch = new_batch
        self._most = most
        self._lanes = lanes
        self._linger = linger
        self._pending: deque[E] = deque()
        self._busy: set[object] = set()
        self._flights: set[asyncio.Task[None]] = set()
        self._scheduled = False
        self._due: asyncio.Handle | None = None
        self._closed = False

    def submit(self, entry: E) -> asyncio.Future[Any]:
        """Queue an entry; its future is resolved when the entry is durable."""
        if self._closed:
            entry.future.set_exception(StoreUnavailableError("the store was closed"))
            return entry.future
        self._pending.append(entry)
        self._schedule()
        return entry.future

    def _schedule(self) -> None:
        """Start a batch after all callers of this turn of the event loop have submitted."""
        if not self._scheduled and len(self._flights) < self._lanes and self._pending:
            self._scheduled = True
            loop = asyncio.get_running_loop()
            if self._linger and not self._closed and len(self._pending) < self._most:
                self._due = loop.call_later(self._linger, self._start)
            else:
                self._due = loop.call_soon(self._start)

    def _start(self) -> None:
        self._scheduled = False
        group = self._next_batch()
        if not group:
            return
        names = {name for entry in group for name in entry.names()}
        self._busy |= names
        flight = asyncio.get_running_loop().create_task(self._send(group, names))
        self._flights.add(flight)
        flight.add_done_callback(self._flights.discard)
        self._schedule()

    def _next_batch(self) -> list[E]:
        """Remove and return the pending entries that may be sent now, in order; the others keep their places."""
        admits = self._new_batch()
        group: list[E] = []
        waiting: list[E] = []
        remaining = self._most * LOOK_AHEAD_BATCHES
        while self._pending and len(group) < self._most and remaining:
            remaining -= 1
            entry = self._pending.popleft()
            if entry.future.cancelled():
                continue
            free = not self._busy or self._busy.isdisjoint(entry.names())
            (group if free and admits(entry) else waiting).append(entry)
        self._pending.extendleft(reversed(waiting))
        return group

    async def _send(self, group: list[E], names: set[object]) -> None:
        try:
            await self._write_or_split(group)
        finally:
            # Every future is resolved by now unless this task was cancelled.
            _resolve(group, [StoreUnavailableError("cancelled while writing") for _ in group])
            self._busy -= names
            self._flights.discard(asyncio.current_task())
            self._schedule()

    async def _write_or_split(self, group: Sequence[E]) -> None:
        try:
            _resolve(group, await self._write(group))
        except Exception as error:
            if isinstance(error, StoreUnavailableError) and not isinstance(error, OutOfLocksError):
                _resolve(group, [StoreUnavailableError(error.message, code=error.code) for _ in group])
            elif len(group) == 1:
                _resolve(group, [error])
            else:
                middle = len(group) // 2
                await self._write_or_split(group[:middle])
                await self._write_or_split(group[middle:])

    async def close(self) -> None:
        """Reject new entries and wait until every submitted entry has its result."""
        self._closed = True
        if self._due is not None and self._scheduled:
            self._due.cancel()
            self._scheduled = False
        while self._flights or self._pending:
            self._schedule()
            if self._flights:
                await asyncio.wait(self._flights)
            else:
                await asyncio.sleep(0)


def _resolve(group: Sequence[Entry], results: Sequence[object]) -> None:
    for entry, result in zip(group, results, strict=True):
        if entry.future.done():
            continue
        if isinstance(result, BaseException):
            entry.future.set_exception(result)
        else:
            entry.future.set_result(result)


class LookupRequest(Generic[K]):
    __slots__ = ("future", "key")

    def __init__(self, key: K) -> None:
        self.key = key
        self.future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def names(self) -> Iterable[object]:
        return ()


class Lookup(Generic[K, V]):
    """Looks up many keys in one query. `fetch` returns one value per key, in the order of the keys."""

    def __init__(
        self,
        database: Database,
        fetch: Callable[[Sequence[K]], Awaitable[Sequence[V]]],
        most: int = MAX_REQUESTS,
    ) -> None:
        self._database = database
        self._fetch = fetch
        self._fetching = False
        self._batches: Batcher[LookupRequest[K]] = Batcher(
            self._fetch_batch, lambda: lambda _: True, lanes=READ_LANES, most=most
        )

    async def of(self, key: K) -> V:
        # A snapshot belongs to one task: its reads cannot be batched with those of others.
        if self._database.in_snapshot:
            return (await self._fetch([key]))[0]
        # A single caller bypasses the batch.
        if not self._fetching:
            self._fetching = True
            try:
                return (await self._fetch([key]))[0]
            finally:
                self._fetching = False
        found: V = await self._batches.submit(LookupRequest(key))
        return found

    async def _fetch_batch(self, group: Sequence[LookupRequest[K]]) -> Sequence[V]:
        return await self._fetch([each.key for each in group])


class ResultRequest:
    """Results of some tokens of one execution."""

    __slots__ = ("execution", "future", "keys")

    def __init__(self, execution: str, keys: Sequence[tuple[int, Path]]) -> None:
        self.execution = execution
        self.keys = keys
        self.future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def names(self) -> Iterable[object]:
        return ()


def result_batch() -> Callable[[ResultRequest], bool]:
    """Return the admission rule of a batch: at most MAX_KEYS results."""
    count = 0

    def admits(request: ResultRequest) -> bool:
        nonlocal count
        if count and count + len(request.keys) > MAX_KEYS:
            return False
        count += len(request.keys)
        return True

    return admits


class ResultReader:
    """Reads results of tokens in batches."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._batches: Batcher[ResultRequest] = Batcher(
            self._fetch_batch, result_batch, lanes=READ_LANES, most=MAX_REQUESTS
        )
        self._statement = query("results")

    async def results(self, execution: str, keys: Sequence[tuple[int, Path]]) -> list[NodeResult | None]:
        """Return the results of these tokens in the order of the keys."""
        found: list[NodeResult | None] = await self._batches.submit(ResultRequest(execution, keys))
        return found

    async def _fetch_batch(self, group: Sequence[ResultRequest]) -> list[list[NodeResult | None]]:
        ids = [each.execution for each in group for _ in each.keys]
        nodes = [node for each in group for node, _ in each.keys]
        paths = [encode_path(path) for each in group for _, path in each.keys]
        bodies: list[NodeResult | None] = [None] * len(ids)
        for place, body in await self._database.fetch(self._statement, ids, nodes, paths):
            fact = decode_fact(body)
            bodies[place - 1] = fact if isinstance(fact, NodeResult) else None
        results: list[list[NodeResult | None]] = []
        start = 0
        for each in group:
            results.append(bodies[start : start + len(each.keys)])
            start += len(each.keys)
        return results
