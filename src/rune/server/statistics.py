"""Figures of executions over time. What happened in a period that is over does not change, so its counts are kept."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, OrderedDict

import msgspec

from rune.ports.clock import Clock
from rune.ports.queries import Statistics

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


class StatisticsCache:
    """The figures of one server process."""

    def __init__(self, source: Statistics, clock: Clock) -> None:
        self.source = source
        self._clock = clock
        self._steps: OrderedDict[tuple[int, int], tuple[float, Counter[Key]]] = OrderedDict()
        self._counting = asyncio.Lock()

    async def series(self, since: int, until: int, step: int) -> list[tuple[int, Counter[Key]]]:
        """Return the executions that ended in each step between two times, oldest first, by workflow and status."""
        found: list[tuple[int, Counter[Key]]] = []
        async with self._counting:
            for begin in range(since - since % step, until, step):
                found.append((begin, await self._step(begin, step)))
        return found

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
