"""A blocked event loop is reported with what blocked it."""

from __future__ import annotations

import asyncio
import logging
import threading
import time

import pytest

from rune.runtime.maintenance.watchdog import LoopWatchdog
from rune.telemetry.counters import Counters
from rune.telemetry.logs import enter_context
from tests.support.waiting import until


class Notes:
    """What the watchdog says of the executions that block the loop."""

    def __init__(self) -> None:
        self.said: list[tuple[str, str]] = []

    def suspect(self, execution: str) -> None:
        self.said.append(("suspect", execution))

    def clear(self, execution: str) -> None:
        self.said.append(("clear", execution))

    def note(self, execution: str, loop: asyncio.AbstractEventLoop) -> None:
        self.said.append(("note", execution))


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


@pytest.mark.parametrize(("held_s", "says"), [(30.0, ["suspect", "clear"]), (0.8, ["suspect", "note"])])
def test_execution_is_suspected_until_the_loop_runs_or_it_is_noted(held_s: float, says: list[str]) -> None:
    notes = Notes()

    async def go() -> None:
        async with LoopWatchdog(Counters(), blocked_s=0.2, held_s=held_s, on_held=notes).watching():

            async def work() -> None:
                enter_context(["", "x1", (), None])
                end = time.monotonic() + 60
                while len(notes.said) < len(says) - ("clear" in says) and time.monotonic() < end:
                    pass

            await asyncio.create_task(work())
            await until(lambda: len(notes.said) == len(says))

    asyncio.run(go())
    assert notes.said == [(each, "x1") for each in says]
