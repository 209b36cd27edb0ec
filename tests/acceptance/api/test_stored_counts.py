"""Figures from counts that a server has stored, compared with executions counted one by one."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from msgspec.structs import replace

from rune.ports.queries import COUNTED_MS
from rune.ports.retention import Rule
from rune.server.views.statistics import SETTLED_MS, StatisticsCache
from rune.testing.harness import VirtualClock
from tests.support.api_server import HELLO, RunningServer, run
from tests.support.backends import stores

STEP_MS = 12 * COUNTED_MS


async def check_figures(server: RunningServer) -> None:
    await server.deploy(HELLO)
    ids = [await server.ended("hello", {"name": "x"}) for _ in range(3)]
    source, counts = server.master.reader.statistics, server.engine.backend.counts
    now = server.engine.backend.clock.now()
    since = now - STEP_MS

    async def totals(at: int) -> Counter[tuple[str, str]]:
        found: Counter[tuple[str, str]] = Counter()
        fresh = StatisticsCache(source, counts, VirtualClock(at))
        for _, each in await fresh.series(since, at + 1, STEP_MS):
            found += each
        return found

    assert await totals(now) == {("hello", "completed"): 3}
    later = now + 2 * COUNTED_MS + SETTLED_MS
    filling = StatisticsCache(source, counts, VirtualClock(later))
    await filling.fill()
    await filling.fill()
    stored = await source.stored(since, later, STEP_MS)
    assert stored.low <= now < stored.high
    assert await totals(later) == {("hello", "completed"): 3}
    removed = await server.engine.services.executions.delete_ended((Rule(keep=0),))
    assert removed.executions == len(ids)
    # What ended has ended, also if it is no longer there.
    assert await totals(later) == {("hello", "completed"): 3}


def test_stored_counts_agree_with_executions(tmp_path: Path) -> None:
    run(tmp_path, check_figures)


def test_stored_counts_agree_with_executions_on_a_cluster(tmp_path: Path) -> None:
    run(tmp_path, check_figures, on=replace(stores(tmp_path), nodes=(), grace=1.0))
