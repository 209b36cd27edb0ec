"""Figures of executions over time, kept for the next request.

What happened in a period that is over does not change, so its counts are stored. Ends are not counted when they are
recorded: a row that all workers increment would make them wait for each other. A server counts each period of five
minutes shortly after it is over, and older ones in the background.
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
