"""A blocked event loop is reported with what blocked it."""

from __future__ import annotations

import asyncio
import logging
import threading
import time

import pytest

from rune.runtime.maintenance.keepalive import LoopWatchdog
from rune.telemetry.counters import Counters
from tests.support.waiting import until


def block_the_loop(seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


def test_a_blocked_loop_is_counted_and_its_stack_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    counters = Counters()

    async def go() -> str:
        async with LoopWatchdog(counters, blocked_s=0.2).watching() as watchdog:
            block_the_loop(1.0)
            await asyncio.to_thread(threading.Event().wait, 0.3)
            return watchdog.stack

    with caplog.at_level(logging.WARNING, "rune.watchdog"):
        stack = asyncio.run(asyncio.wait_for(go(), 30))
    assert "block_the_loop" in stack
    assert "block_the_loop" in caplog.text
    assert counters.blocks_longest > 0.2
    assert counters.blocks_seconds >= counters.blocks_longest


def test_a_loop_that_is_free_is_not_reported() -> None:
    counters = Counters()

    async def go() -> None:
        async with LoopWatchdog(counters, blocked_s=5).watching():
            await asyncio.to_thread(threading.Event().wait, 0.6)

    asyncio.run(go())
    assert counters.blocks == 0


def test_a_jump_of_the_clock_is_logged_and_counted(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    counters, real, ahead = Counters(), time.time, 0.0
    monkeypatch.setattr(time, "time", lambda: real() + ahead)

    async def go() -> None:
        nonlocal ahead
        async with LoopWatchdog(counters).watching():
            await until(lambda: any(each.name == "rune-watchdog" for each in threading.enumerate()))
            await asyncio.to_thread(threading.Event().wait, 0.6)
            ahead = -3600.0
            await until(lambda: counters.clock_jumps == 1)

    with caplog.at_level(logging.WARNING, "rune.watchdog"):
        asyncio.run(asyncio.wait_for(go(), 30))
    assert "the system clock jumped by -3600.0 s" in caplog.text
