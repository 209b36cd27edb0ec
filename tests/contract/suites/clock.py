"""Contract of clocks."""

from __future__ import annotations

import asyncio
from pathlib import Path

from rune.ports.clock import Clock
from tests.support.async_test import async_test

ROUNDING = 5


class ClockContract:
    """Subclasses create a clock; `pass_time` advances one that does not run by itself."""

    def make_clock(self) -> Clock:
        raise NotImplementedError

    def pass_time(self, clock: Clock, ms: int) -> None:
        """Advance the clock; a running clock needs nothing."""

    @async_test
    async def test_now_is_monotonic(self, tmp_path: Path) -> None:
        clock = self.make_clock()
        seen = [clock.now() for _ in range(100)]
        assert seen == sorted(seen)

    @async_test
    async def test_sleep_until_past_time_returns_at_once(self, tmp_path: Path) -> None:
        clock = self.make_clock()
        await clock.sleep_until(clock.now() - 1_000)
        await clock.sleep_until(clock.now())

    @async_test
    async def test_sleep_ends_at_given_time(self, tmp_path: Path) -> None:
        clock = self.make_clock()
        due = clock.now() + 30
        sleeping = asyncio.create_task(clock.sleep_until(due))
        await asyncio.sleep(0)
        assert not sleeping.done()
        self.pass_time(clock, 30)
        await sleeping
        assert clock.now() >= due - ROUNDING

    @async_test
    async def test_wake_ends_sleep_without_deadline(self, tmp_path: Path) -> None:
        clock = self.make_clock()
        sleeping = asyncio.create_task(clock.sleep_until(None))
        await asyncio.sleep(0)
        assert not sleeping.done()
        clock.wake()
        await sleeping

    @async_test
    async def test_wake_before_sleep_is_not_lost(self, tmp_path: Path) -> None:
        clock = self.make_clock()
        clock.wake()
        await clock.sleep_until(None)

    @async_test
    async def test_wake_ends_only_one_sleep(self, tmp_path: Path) -> None:
        clock = self.make_clock()
        clock.wake()
        await clock.sleep_until(None)
        sleeping = asyncio.create_task(clock.sleep_until(None))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not sleeping.done()
        clock.wake()
        await sleeping
