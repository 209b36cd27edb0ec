"""Contract of the stored counts of ended executions."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from rune.ports.queries import COUNTED_MS, CountStore, Statistics, StatusCount
from tests.support.async_test import async_test

HOUR_MS = 3_600_000
BEGIN = 1_000 * HOUR_MS


def counts(number: int) -> list[StatusCount]:
    return [StatusCount("orders", "completed", number), StatusCount("orders", "failed", 1)]


class CountContract:
    """Subclasses open the store in a folder, with the queries that read it."""

    def make_counts(self, folder: Path) -> AbstractAsyncContextManager[tuple[CountStore, Statistics]]:
        raise NotImplementedError

    @async_test
    async def test_adjoining_periods_are_summed_up_by_steps(self, tmp_path: Path) -> None:
        async with self.make_counts(tmp_path) as (store, statistics):
            empty = await statistics.stored(0, BEGIN, HOUR_MS)
            assert (empty.low, empty.high, empty.counts) == (0, 0, {})
            assert await statistics.first_end() is None
            assert await store.add(BEGIN, counts(2))
            assert await store.add(BEGIN + COUNTED_MS, counts(3))
            assert await store.add(BEGIN - COUNTED_MS, counts(5))
            assert await store.add(BEGIN - 2 * COUNTED_MS, [])
            found = await statistics.stored(BEGIN - HOUR_MS, BEGIN + HOUR_MS, HOUR_MS)
            assert (found.low, found.high) == (BEGIN - 2 * COUNTED_MS, BEGIN + 2 * COUNTED_MS)
            assert {begin: sorted(each, key=str) for begin, each in found.counts.items()} == {
                BEGIN - HOUR_MS: counts(5),
                BEGIN: [StatusCount("orders", "completed", 5), StatusCount("orders", "failed", 2)],
            }

    @async_test
    async def test_period_that_is_counted_or_leaves_a_gap_is_not_added(self, tmp_path: Path) -> None:
        async with self.make_counts(tmp_path) as (store, statistics):
            assert await store.add(BEGIN, counts(2))
            assert not await store.add(BEGIN, counts(2))
            assert not await store.add(BEGIN + 2 * COUNTED_MS, counts(2))
            added = await asyncio.gather(*(store.add(BEGIN + COUNTED_MS, counts(1)) for _ in range(6)))
            assert sum(added) == 1
            found = await statistics.stored(BEGIN, BEGIN + HOUR_MS, HOUR_MS)
            assert sum(each.count for each in found.counts[BEGIN]) == 5
