"""What every clock promises."""

from __future__ import annotations

import asyncio
from pathlib import Path

from rune.ports.clock import Clock
from tests.contract.suites.scenario import scenario

ROUNDING = 5


class ClockContract:
    """Subclass it and make a clock. `pass_time` moves one that does not move by itself."""

    def make_clock(self) -> Clock:
        raise NotImplementedError

    def pass_time(self, clock: Clock, ms: int) -> None:
        """Nothing, for a clock that runs."""

    @scenario
    async def test_time_never_goes_back(self, folder: Path) -> None:
        clock = self.make_clock()
        seen = [clock.now() for _ in range(100)]
        assert seen == sorted(seen)

    @scenario
    async def test_a_moment_that_has_passed_is_not_waited_for(self, folder: Path) -> None:
        clock = self.make_clock()
        await clock.sleep_until(clock.now() - 1_000)
        await clock.sleep_until(clock.now())

    @scenario
    async def test_a_sleep_ends_at_its_moment(self, folder: Path) -> None:
        clock = self.make_clock()
        when = clock.now() + 30
        sleeping = asyncio.create_task(clock.sleep_until(when))
        await asyncio.sleep(0)
        assert not sleeping.done()
        self.pass_time(clock, 30)
        await sleeping
        assert clock.now() >= when - ROUNDING

    @scenario
    async def test_a_wake_ends_a_sleep_without_end(self, folder: Path) -> None:
        clock = self.make_clock()
        sleeping = asyncio.create_task(clock.sleep_until(None))
        await asyncio.sleep(0)
        assert not sleeping.done()
        clock.wake()
        await sleeping

    @scenario
    async def test_a_wake_before_the_sleep_is_not_lost(self, folder: Path) -> None:
        clock = self.make_clock()
        clock.wake()
        await clock.sleep_until(None)

    @scenario
    async def test_a_wake_ends_one_sleep_and_not_the_next(self, folder: Path) -> None:
        clock = self.make_clock()
        clock.wake()
        await clock.sleep_until(None)
        sleeping = asyncio.create_task(clock.sleep_until(None))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not sleeping.done()
        clock.wake()
        await sleeping
