"""Items of fan-outs step back while the turns of the loop are long, and only then."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from rune.runtime.worker.fair_share import LONG_TURN_S, MIN_ITEMS, OTHERS_ACTIVE_S, FairShare

SLOTS = 100
NOW = 1000.0


async def _entered(share: FairShare, count: int) -> list[asyncio.Task[None]]:
    tasks = [asyncio.create_task(share.acquire("many")) for _ in range(count)]
    await _inside(tasks)
    return tasks


async def _inside(tasks: list[asyncio.Task[None]]) -> int:
    """How many of them are, once each has had its chance."""
    for _ in range(3):
        await asyncio.wait(tasks, timeout=0)
    return sum(task.done() for task in tasks)


def test_every_slot_is_theirs_while_the_turns_are_short() -> None:
    async def go() -> None:
        share = FairShare(SLOTS)
        for _ in range(50):
            share.adjust(LONG_TURN_S / 2, NOW)
        tasks = await _entered(share, SLOTS + 5)
        assert await _inside(tasks) == SLOTS
        for task in tasks:
            task.cancel()

    asyncio.run(go())


def test_long_turns_take_slots_from_them_down_to_a_few_and_short_ones_give_them_back() -> None:
    async def go() -> None:
        share = FairShare(SLOTS)
        tasks = await _entered(share, SLOTS)
        share.note_other("one", NOW)
        seen = []
        for _ in range(50):
            share.adjust(2 * LONG_TURN_S, NOW)
            seen.append(share.limit)
        assert seen == sorted(seen, reverse=True)
        assert share.limit == MIN_ITEMS

        waiting = await _entered(share, 3)
        for _ in range(SLOTS - MIN_ITEMS):
            share.release("many")
        assert await _inside(waiting) == 0  # as many as may be are still under way
        share.release("many")
        assert await _inside(waiting) == 1
        for _ in range(50):
            share.adjust(0.0, NOW)
        assert share.limit == SLOTS
        assert await _inside(waiting) == 3
        assert await _inside(tasks) == SLOTS

    asyncio.run(go())


def test_alone_they_have_every_slot_however_long_the_turns_are() -> None:
    async def go() -> None:
        share = FairShare(SLOTS)
        tasks = await _entered(share, SLOTS)
        share.note_other("many", NOW)  # the fan-out itself goes on
        share.adjust(2 * LONG_TURN_S, NOW)
        assert share.limit == SLOTS
        share.note_other("one", NOW)
        share.adjust(2 * LONG_TURN_S, NOW)
        assert share.limit < SLOTS
        share.adjust(2 * LONG_TURN_S, NOW + OTHERS_ACTIVE_S)
        assert share.limit == SLOTS
        assert await _inside(tasks) == SLOTS

    asyncio.run(go())


def test_who_is_cancelled_while_it_waits_keeps_no_place() -> None:
    async def go() -> None:
        share = FairShare(2)
        inside = await _entered(share, 2)
        assert await _inside(inside) == 2
        first, second = await _entered(share, 2)
        share.release("many")  # the first is called, and cancelled before it comes
        first.cancel()
        with suppress(asyncio.CancelledError):
            await first
        async with asyncio.timeout(60):
            await second

    asyncio.run(go())
