"""QueueDepths: the cached depths of a queue that is on another server."""

from __future__ import annotations

import asyncio
from typing import Any

from rune.ports.inspection import QueueDepth
from rune.runtime.services import start_limits
from rune.runtime.services.start_limits import QueueDepths


class SlowQueue:
    """A queue that answers `depths` once `may_answer` is set."""

    def __init__(self) -> None:
        self.may_answer = asyncio.Event()
        self.calls = 0
        self.fails = False

    async def depths(self) -> list[QueueDepth]:
        self.calls += 1
        await self.may_answer.wait()
        if self.fails:
            raise ConnectionError
        return [QueueDepth(queue="default", waiting=7), QueueDepth(queue="slow", waiting=9)]


def test_read_waits_for_remote_queue_only_if_asked(monkeypatch: Any) -> None:
    async def run() -> None:
        queue: Any = SlowQueue()
        depths = QueueDepths(queue, near=False)
        assert await depths.read(wait=False) == {}
        assert await depths.read(wait=False) == {}
        queue.may_answer.set()
        assert await depths.read(wait=True) == {"default": 7, "slow": 9}
        assert queue.calls == 1
        monkeypatch.setattr(start_limits, "CACHE_S", 0.0)
        assert await depths.read(wait=False) == {"default": 7, "slow": 9}
        queue.fails = True
        await depths.read(wait=True)
        assert await depths.read(wait=True) == {}

    asyncio.run(run())
