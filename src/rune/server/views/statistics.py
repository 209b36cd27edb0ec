"""Figures of executions over time, and overviews of single executions, both kept for the next request.

What happened in a period that is over does not change, so its counts are stored. Ends are not counted when they are
recorded: a row that all workers increment would make them wait for each other. A server counts each period of five
minutes shortly after it is over, and older ones in the background.

The first request for an overview reads all facts of an execution, later ones only those that were added. The overview
of a long execution that has ended is stored beside its blobs, so that no process reads its facts for it again;
retention removes it with the execution.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter, OrderedDict
from collections.abc import Iterable

import msgspec

from rune.ports.clock import Clock
from rune.ports.journal import StoreUnavailableError
from rune.ports.queries import COUNTED_MS, CountStore, Statistics, StatusCount, StoredCounts
from rune.runtime.engine import Engine
from rune.runtime.off_loop import off_loop
from rune.runtime.queries.overview import Overview
from rune.runtime.queries.reader import ExecutionReader
from rune.server.views.node_runs import CLAIMS_WRITTEN_S

log = logging.getLogger("rune.server.views.statistics")

FILL_INTERVAL_S = 30.0
MAX_FILLED = 1_000  # periods that are counted at once
MAX_FILLED_MS = 400 * 86_400_000  # older executions are not counted in advance
MAX_STEPS = 400
MAX_CACHED_STEPS = 20_000
SETTLED_MS = 60_000  # after its end a period is counted once more, because a clock or a commit may be late
KEPT_S = 3_600.0  # retention may remove executions that were counted
MAX_DURATIONS = 200
RECENT = 20

Key = tuple[str, str]
"""Workflow and status."""

overview_log = logging.getLogger("rune.server.views.overviews")

MAX_CACHED_BYTES = 96 * 1024 * 1024
MAX_REPLAYS = 8
MIN_STORED_FACTS = 2_000  # shorter executions are computed as quickly as they are read
BATCH_SIZE = 500  # facts per turn of the event loop
BLOB = "#overview"


class Quantiles(msgspec.Struct, frozen=True):
    """How long the executions of a workflow took that ended last."""

    count: int
    p50_ms: int
    p95_ms: int


def _counter(counts: Iterable[StatusCount]) -> Counter[Key]:
    return Counter({(each.workflow, each.status): each.count for each in counts})


class StatisticsCache:
    """The figures of one server process."""

    def __init__(self, source: Statistics, counts: CountStore, clock: Clock) -> None:
        self.source = source
        self._counts = counts
        self._clock = clock
        self._steps: OrderedDict[tuple[int, int], tuple[float, Counter[Key]]] = OrderedDict()
        self._counting = asyncio.Lock()

    async def series(self, since: int, until: int, step: int) -> list[tuple[int, Counter[Key]]]:
        """Return the executions that ended in each step between two times, oldest first, by workflow and status."""
        first = since - since % step
        found: list[tuple[int, Counter[Key]]] = []
        async with self._counting:
            known = StoredCounts()
            if step % COUNTED_MS == 0:
                known = await self.source.stored(first, until, step)
            for begin in range(first, until, step):
                low, high = max(begin, known.low), min(begin + step, known.high)
                if low >= high:
                    found.append((begin, await self._step(begin, step)))
                    continue
                counted = _counter(known.counts.get(begin, ()))
                for start, end in ((begin, low), (high, min(begin + step, until))):
                    if start < end:
                        counted += _counter(await self.source.ended(start, end))
                found.append((begin, counted))
        return found

    async def run(self) -> None:
        """Store the counts of periods that are over, until cancelled."""
        while True:
            try:
                await self.fill()
            except StoreUnavailableError as error:
                log.info("ended executions are not counted in advance: %s", error)
            await asyncio.sleep(FILL_INTERVAL_S)

    async def fill(self) -> None:
        """Count periods that are over: those since the last count, then older ones, newest first."""
        settled = self._clock.now() - SETTLED_MS
        last = settled - settled % COUNTED_MS - COUNTED_MS
        known = await self.source.stored(last, last, COUNTED_MS)
        if not known.high:
            await self._store(last)
            known = StoredCounts(last, last + COUNTED_MS)
        ahead = list(range(known.high, last + COUNTED_MS, COUNTED_MS))[:MAX_FILLED]
        first = await self.source.first_end()
        oldest = known.low if first is None else max(first, settled - MAX_FILLED_MS)
        behind = range(known.low - COUNTED_MS, oldest - COUNTED_MS, -COUNTED_MS)
        for begin in (*ahead, *behind[: MAX_FILLED - len(ahead)]):
            if not await self._store(begin):
                return

    async def _store(self, begin: int) -> bool:
        counted = await self.source.ended(begin, begin + COUNTED_MS)
        await asyncio.sleep(0)
        return await self._counts.add(begin, counted)

    async def _step(self, begin: int, step: int) -> Counter[Key]:
        known = self._steps.get((step, begin))
        if known is not None and time.monotonic() - known[0] < KEPT_S:
            return known[1]
        counted: Counter[Key] = Counter()
        for each in await self.source.ended(begin, begin + step):
            counted[(each.workflow, each.status)] = each.count
        if begin + step + SETTLED_MS < self._clock.now():
            self._steps[(step, begin)] = (time.monotonic(), counted)
            self._steps.move_to_end((step, begin))
            if len(self._steps) > MAX_CACHED_STEPS:
                self._steps.popitem(last=False)
        await asyncio.sleep(0)
        return counted

    async def quantiles(self, workflow: str) -> Quantiles | None:
        """Return how long the executions of a workflow take; None if none has ended."""
        taken = sorted(await self.source.durations(workflow, MAX_DURATIONS))
        if not taken:
            return None
        return Quantiles(
            len(taken), taken[len(taken) // 2], taken[min(len(taken) - 1, len(taken) * 95 // 100)]
        )


class OverviewCache:
    """The overviews of one server process."""

    def __init__(self, engine: Engine, reader: ExecutionReader) -> None:
        self._blob = engine.backend.blob
        self._reader = reader
        self._cached: OrderedDict[str, Overview] = OrderedDict()
        self._replays: OrderedDict[str, Overview] = OrderedDict()
        self._locks: dict[str, asyncio.Lock] = {}
        self._stored: set[str] = set()

    async def of(self, execution: str) -> Overview:
        """Return the overview of an execution up to now."""
        lock = self._locks.setdefault(execution, asyncio.Lock())
        try:
            async with lock:
                found = self._cached.get(execution) or await self._load(execution)
                await self._follow(execution, found)
                await self._add_claims(execution, found)
                self._cache(execution, found)
                await self._store(execution, found)
                return found
        finally:
            if not lock.locked():
                self._locks.pop(execution, None)

    async def at(self, execution: str, number: int) -> Overview:
        """Return the overview of an execution as it was after an event."""
        newest = self._cached.get(execution)
        if newest is not None and newest.number <= number:
            return await self.of(execution)
        replay = self._replays.pop(execution, None)
        if replay is None or replay.number > number:
            replay = await self._new(execution)
        await self._follow(execution, replay, number)
        await self._add_claims(execution, replay)
        self._replays[execution] = replay
        if len(self._replays) > MAX_REPLAYS:
            self._replays.popitem(last=False)
        return replay

    async def _new(self, execution: str) -> Overview:
        accepted = await self._reader.accepted(execution)
        return Overview(await self._reader.plan(execution), accepted.at)

    async def _load(self, execution: str) -> Overview:
        """Return the stored overview, or an empty one."""
        made = await self._new(execution)
        summary = await self._reader.execution(execution)
        if summary is None or summary.ended_at is None:
            return made
        data = await self._blob.get(f"{execution}/{BLOB}")
        stored = None if data is None else Overview.decode(made.plan, made.started_at, data)
        if stored is None:
            return made
        self._stored.add(execution)
        return stored

    async def _follow(self, execution: str, overview: Overview, until: int | None = None) -> None:
        while until is None or overview.number < until:
            size = BATCH_SIZE if until is None else min(BATCH_SIZE, until - overview.number)
            stored = await self._reader.facts(execution, overview.last, size)
            for each in stored:
                overview.add(each)
            if len(stored) < size:
                return
            await asyncio.sleep(0)

    async def _add_claims(self, execution: str, overview: Overview) -> None:
        """Add what workers ran when the execution ended; they write it up to some seconds after the end."""
        end = overview.end
        if end is None or end.status == "completed" or execution in self._stored:
            return
        overview.add_claims(await self._reader.open_claims(execution))

    def _cache(self, execution: str, overview: Overview) -> None:
        self._cached[execution] = overview
        self._cached.move_to_end(execution)
        total = sum(each.size for each in self._cached.values())
        while len(self._cached) > 1 and total > MAX_CACHED_BYTES:
            dropped, old = self._cached.popitem(last=False)
            self._stored.discard(dropped)
            total -= old.size

    async def _store(self, execution: str, overview: Overview) -> None:
        if not overview.final or overview.number < MIN_STORED_FACTS or execution in self._stored:
            return
        end = overview.end
        assert end is not None
        if end.status != "completed" and time.time() * 1000 - end.at < CLAIMS_WRITTEN_S * 1000:
            return
        self._stored.add(execution)
        data = await off_loop(overview.encode)
        try:
            await self._blob.put(f"{execution}/{BLOB}", data)
        except StoreUnavailableError as error:
            # It is computed again when it is needed next.
            overview_log.warning("the overview of %s cannot be stored: %s", execution, error)
