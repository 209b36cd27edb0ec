"""Grouping: what comes while a group is being written is the next group.

A single idle entry is written at once; a thousand at once cost a few round trips and a few syncs of the disk.

Reading: what concurrent tokens ask for is fetched together.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Generic, Protocol, TypeVar

from rune.adapters.postgres.database import Database, TooManyConnectionsError, query
from rune.codec.facts import decode_fact, encode_path
from rune.core.execution.fact import NodeResult
from rune.core.execution.token import Path
from rune.ports.journal import StoreUnavailableError

LOOK_AHEAD = 4
"""How many times the size of a group is looked through for entries that may go now."""


class Entry(Protocol):
    """Something to be written by whoever comes first to it."""

    future: asyncio.Future[Any]

    def names(self) -> Iterable[object]:
        """What nobody else in flight may have to do with."""


E = TypeVar("E", bound=Entry)
Admits = Callable[[E], bool]
"""Takes an entry into a group, unless it has to wait for the next."""


class Batcher(Generic[E]):
    """Writes entries in groups, a few groups at a time, each on a connection of its own.

    `write` writes a group in one act and answers one answer or exception each. Where it raises, the group is written in
    halves, so that an entry that cannot be written harms nobody but itself. `linger`: for how many seconds a group may
    wait for more, where nobody waits for the answer.
    """

    def __init__(
        self,
        write: Callable[[Sequence[E]], Awaitable[Sequence[object]]],
        gathering: Callable[[], Admits[E]],
        *,
        lanes: int,
        most: int,
        linger: float = 0.0,
    ) -> None:
        self._write = write
        self._gathering = gathering
        self._most = most
        self._lanes = lanes
        self._linger = linger
        self._pending: deque[E] = deque()
        self._busy: set[object] = set()
        self._flights: set[asyncio.Task[None]] = set()
        self._called = False
        self._due: asyncio.Handle | None = None
        self._closed = False

    def submit(self, entry: E) -> asyncio.Future[Any]:
        """Have an entry written; the answer comes when it is durable."""
        if self._closed:
            entry.future.set_exception(StoreUnavailableError("the store was closed"))
            return entry.future
        self._pending.append(entry)
        self._call()
        return entry.future

    def _call(self) -> None:
        """Look for work behind everybody who is about to submit in this turn of the loop."""
        if not self._called and len(self._flights) < self._lanes and self._pending:
            self._called = True
            loop = asyncio.get_running_loop()
            if self._linger and not self._closed and len(self._pending) < self._most:
                self._due = loop.call_later(self._linger, self._start)
            else:
                self._due = loop.call_soon(self._start)

    def _start(self) -> None:
        self._called = False
        group = self._gather()
        if not group:
            return
        names = {name for entry in group for name in entry.names()}
        self._busy |= names
        flight = asyncio.get_running_loop().create_task(self._fly(group, names))
        self._flights.add(flight)
        flight.add_done_callback(self._flights.discard)
        self._call()

    def _gather(self) -> list[E]:
        """Those who may go now, in their order; the others stay where they are."""
        admits = self._gathering()
        group: list[E] = []
        waiting: list[E] = []
        looks = self._most * LOOK_AHEAD
        while self._pending and len(group) < self._most and looks:
            looks -= 1
            entry = self._pending.popleft()
            if entry.future.cancelled():
                continue
            free = not self._busy or self._busy.isdisjoint(entry.names())
            (group if free and admits(entry) else waiting).append(entry)
        self._pending.extendleft(reversed(waiting))
        return group

    async def _fly(self, group: list[E], names: set[object]) -> None:
        try:
            await self._written(group)
        finally:
            _answer(
                group, [StoreUnavailableError("given up while writing") for _ in group]
            )  # only if we were cancelled
            self._busy -= names
            self._flights.discard(asyncio.current_task())
            self._call()

    async def _written(self, group: Sequence[E]) -> None:
        try:
            _answer(group, await self._write(group))
        except Exception as error:
            if isinstance(error, StoreUnavailableError) and not isinstance(error, TooManyConnectionsError):
                _answer(group, [StoreUnavailableError(error.message, code=error.code) for _ in group])
            elif len(group) == 1:
                _answer(group, [error])
            else:
                middle = len(group) // 2
                await self._written(group[:middle])
                await self._written(group[middle:])

    async def close(self) -> None:
        """Take nothing more, and wait until everything that was submitted is answered."""
        self._closed = True
        if self._due is not None and self._called:
            self._due.cancel()
            self._called = False
        while self._flights or self._pending:
            self._call()
            if self._flights:
                await asyncio.wait(self._flights)
            else:
                await asyncio.sleep(0)


def _answer(group: Sequence[Entry], answers: Sequence[object]) -> None:
    for entry, answer in zip(group, answers, strict=True):
        if entry.future.done():
            continue
        if isinstance(answer, BaseException):
            entry.future.set_exception(answer)
        else:
            entry.future.set_result(answer)


LANES = 2
MAX_REQUESTS = 128
MAX_KEYS = 2_000

K = TypeVar("K")
V = TypeVar("V")


class LookupRequest(Generic[K]):
    """Something to be looked up."""

    __slots__ = ("future", "key")

    def __init__(self, key: K) -> None:
        self.key = key
        self.future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def names(self) -> Iterable[object]:
        return ()


class Lookup(Generic[K, V]):
    """Looks up many keys in one question. `ask` answers one value each, in the order asked."""

    def __init__(
        self,
        database: Database,
        ask: Callable[[Sequence[K]], Awaitable[Sequence[V]]],
        most: int = MAX_REQUESTS,
    ) -> None:
        self._database = database
        self._ask = ask
        self._asking = False
        self._groups: Batcher[LookupRequest[K]] = Batcher(
            self._asked, lambda: lambda _: True, lanes=LANES, most=most
        )

    async def of(self, key: K) -> V:
        if self._database.in_snapshot:  # a moment of one's own is not shared with others
            return (await self._ask([key]))[0]
        if not self._asking:  # nobody to share with
            self._asking = True
            try:
                return (await self._ask([key]))[0]
            finally:
                self._asking = False
        found: V = await self._groups.submit(LookupRequest(key))
        return found

    async def _asked(self, group: Sequence[LookupRequest[K]]) -> Sequence[V]:
        return await self._ask([each.key for each in group])


class ResultRequest:
    """The results of some tokens of one execution."""

    __slots__ = ("execution", "future", "keys")

    def __init__(self, execution: str, keys: Sequence[tuple[int, Path]]) -> None:
        self.execution = execution
        self.keys = keys
        self.future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def names(self) -> Iterable[object]:
        return ()


def result_batch() -> Callable[[ResultRequest], bool]:
    """A group: not too much at once."""
    count = 0

    def admits(question: ResultRequest) -> bool:
        nonlocal count
        if count and count + len(question.keys) > MAX_KEYS:
            return False
        count += len(question.keys)
        return True

    return admits


class ResultReader:
    """Answers questions in groups."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._groups: Batcher[ResultRequest] = Batcher(
            self._ask, result_batch, lanes=LANES, most=MAX_REQUESTS
        )
        self._statement = query("results")

    async def results(self, execution: str, keys: Sequence[tuple[int, Path]]) -> list[NodeResult | None]:
        """The results of these tokens, in the order asked."""
        found: list[NodeResult | None] = await self._groups.submit(ResultRequest(execution, keys))
        return found

    async def _ask(self, group: Sequence[ResultRequest]) -> list[list[NodeResult | None]]:
        ids = [each.execution for each in group for _ in each.keys]
        nodes = [node for each in group for node, _ in each.keys]
        paths = [encode_path(path) for each in group for _, path in each.keys]
        bodies: list[NodeResult | None] = [None] * len(ids)
        for place, body in await self._database.fetch(self._statement, ids, nodes, paths):
            fact = decode_fact(body)
            bodies[place - 1] = fact if isinstance(fact, NodeResult) else None
        answers: list[list[NodeResult | None]] = []
        start = 0
        for each in group:
            answers.append(bodies[start : start + len(each.keys)])
            start += len(each.keys)
        return answers
