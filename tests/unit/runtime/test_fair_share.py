"""FairShare: items of fan-outs get fewer slots while event-loop turns are long and other executions are active."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from rune.runtime.worker.fair_share import (
    LONG_TURN_S,
    MEASURE_INTERVAL_S,
    MIN_ITEMS,
    OTHERS_ACTIVE_S,
    FairShare,
)
from tests.support.waiting import until

SLOTS = 100
NOW = 1000.0


async def _acquire(share: FairShare, count: int) -> list[asyncio.Task[None]]:
    tasks = [asyncio.create_task(share.acquire("many")) for _ in range(count)]
    await _acquired(tasks)
    return tasks


async def _acquired(tasks: list[asyncio.Task[None]]) -> int:
    """The number of tasks that hold a slot, after the event loop has run."""
    for _ in range(3):
        await asyncio.wait(tasks, timeout=0)
    return sum(task.done() for task in tasks)


def test_items_use_all_slots_while_turns_are_short() -> None:
    async def run() -> None:
        share = FairShare(SLOTS)
        for _ in range(50):
            share.adjust(LONG_TURN_S / 2, NOW)
        tasks = await _acquire(share, SLOTS + 5)
        assert await _acquired(tasks) == SLOTS
        for task in tasks:
            task.cancel()

    asyncio.run(run())


def test_limit_shrinks_on_long_turns_and_recovers_on_short_ones() -> None:
    async def run() -> None:
        share = FairShare(SLOTS)
        tasks = await _acquire(share, SLOTS)
        share.note_other("one", NOW)
        limits = []
        for _ in range(50):
            share.adjust(2 * LONG_TURN_S, NOW)
            limits.append(share.limit)
        assert limits == sorted(limits, reverse=True)
        assert share.limit == MIN_ITEMS

        waiting = await _acquire(share, 3)
        for _ in range(SLOTS - MIN_ITEMS):
            share.release("many")
        assert await _acquired(waiting) == 0  # the limit is still in use
        share.release("many")
        assert await _acquired(waiting) == 1
        for _ in range(50):
            share.adjust(0.0, NOW)
        assert share.limit == SLOTS
        assert await _acquired(waiting) == 3
        assert await _acquired(tasks) == SLOTS

    asyncio.run(run())


def test_limit_stays_full_without_other_executions() -> None:
    async def run() -> None:
        share = FairShare(SLOTS)
        tasks = await _acquire(share, SLOTS)
        share.note_other("many", NOW)  # the execution of the fan-out itself
        share.adjust(2 * LONG_TURN_S, NOW)
        assert share.limit == SLOTS
        share.note_other("one", NOW)
        share.adjust(2 * LONG_TURN_S, NOW)
        assert share.limit < SLOTS
        share.adjust(2 * LONG_TURN_S, NOW + OTHERS_ACTIVE_S)
        assert share.limit == SLOTS
        assert await _acquired(tasks) == SLOTS

    asyncio.run(run())


def test_cancelled_waiter_frees_its_slot() -> None:
    async def run() -> None:
        share = FairShare(2)
        holders = await _acquire(share, 2)
        assert await _acquired(holders) == 2
        first, second = await _acquire(share, 2)
        share.release("many")  # the first waiter gets the slot, and is cancelled before it runs
        first.cancel()
        with suppress(asyncio.CancelledError):
            await first
        async with asyncio.timeout(60):
            await second

    asyncio.run(run())


def test_turns_are_measured_only_while_executions_compete(monkeypatch: pytest.MonkeyPatch) -> None:
    """A timer every few milliseconds would keep an idle worker busy."""

    async def run() -> None:
        loop = asyncio.get_running_loop()
        measured: list[float] = []
        call_later = loop.call_later

        def noted(delay: float, *arguments: Any, **options: Any) -> asyncio.TimerHandle:
            if delay == MEASURE_INTERVAL_S:
                measured.append(loop.time())
            return call_later(delay, *arguments, **options)

        monkeypatch.setattr(loop, "call_later", noted)
        share = FairShare(SLOTS)
        running = asyncio.create_task(share.run())
        tasks = await _acquire(share, SLOTS)
        assert measured == []
        share.note_other("one", loop.time())
        assert await _acquired(tasks) == SLOTS
        assert measured
        share.adjust(2 * LONG_TURN_S, loop.time())
        assert share.limit < SLOTS
        share.note_other("one", loop.time() - OTHERS_ACTIVE_S)  # the last other token was received long ago
        await until(lambda: share.limit == SLOTS)
        count = len(measured)
        assert await _acquired(tasks) == SLOTS
        assert len(measured) == count
        running.cancel()

    asyncio.run(run())
