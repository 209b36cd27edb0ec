"""Load: executions started the public way, so many at once, each seen to its end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from rune.core.plan import Plan
from rune.runtime.engine import Engine


async def completed(engine: Engine, plan: Plan, payloads: Sequence[bytes], at_once: int) -> list[float]:
    """Run one execution per payload; answers how long each took from start to completed, in ms."""
    waiting = iter(payloads)
    took: list[float] = []

    async def lane() -> None:
        for payload in waiting:
            began = time.perf_counter()
            _, ending = await engine.start(plan, payload)
            end = await ending
            if end.status != "completed":
                raise AssertionError(f"an execution ended as {end.status}: {end.error}")
            took.append((time.perf_counter() - began) * 1000)

    async with asyncio.TaskGroup() as group:
        for _ in range(min(at_once, len(payloads))):
            group.create_task(lane())
    return took
