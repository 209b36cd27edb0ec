"""The limiter: what is known of queues that are elsewhere, and who waits until it is."""

from __future__ import annotations

import asyncio
from typing import Any

from rune.ports.inspection import QueueDepth
from rune.runtime.services import limits
from rune.runtime.services.limits import QueueDepths


class Elsewhere:
    """A queue that says how long it is when it is let."""

    def __init__(self) -> None:
        self.may = asyncio.Event()
        self.asked = 0
        self.breaks = False

    async def depths(self) -> list[QueueDepth]:
        self.asked += 1
        await self.may.wait()
        if self.breaks:
            raise ConnectionError
        return [QueueDepth(queue="default", waiting=7), QueueDepth(queue="slow", waiting=9)]


def test_a_start_does_not_wait_for_a_queue_unless_it_is_limited_by_it(monkeypatch: Any) -> None:
    async def work() -> None:
        queue: Any = Elsewhere()
        depths = QueueDepths(queue, near=False)
        assert await depths.read(wait=False) == {}
        assert await depths.read(wait=False) == {}
        queue.may.set()
        assert await depths.read(wait=True) == {"default": 7, "slow": 9}
        assert queue.asked == 1
        monkeypatch.setattr(limits, "CACHE_S", 0.0)
        assert await depths.read(wait=False) == {"default": 7, "slow": 9}
        queue.breaks = True
        await depths.read(wait=True)
        assert await depths.read(wait=True) == {}

    asyncio.run(work())
