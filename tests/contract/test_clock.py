"""Contract tests of the clocks."""

from __future__ import annotations

from pathlib import Path

import pytest

from rune.ports.clock import Clock, SystemClock
from rune.testing.harness import VirtualClock
from tests.contract.suites.clock import ClockContract
from tests.support.async_test import async_test


class TestSystemClock(ClockContract):
    def make_clock(self) -> SystemClock:
        return SystemClock()


class TestVirtualClock(ClockContract):
    def make_clock(self) -> VirtualClock:
        return VirtualClock()

    def pass_time(self, clock: Clock, ms: int) -> None:
        assert isinstance(clock, VirtualClock)
        clock.advance(ms)

    @async_test
    async def test_virtual_time_moves_only_on_advance(self, tmp_path: Path) -> None:
        clock = self.make_clock()
        before = clock.now()
        assert clock.now() == before
        clock.advance(5)
        assert clock.now() == before + 5
        with pytest.raises(ValueError, match="back"):
            clock.advance(-1)
        assert not clock.advance_to_next()
