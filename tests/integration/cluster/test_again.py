"""Messages that come again for an execution that sleeps: it is read back, and what is done stays done."""

from __future__ import annotations

import asyncio

from rune.core.execution.fact import NodeSuspended
from rune.testing.harness import Harness, Run
from tests.hazards import splitting
from tests.hazards.building import counting, kind, runs
from tests.hazards.clustered import engines, fresh, until_queued
from tests.support.waiting import until


async def _asleep(run: Run) -> None:
    async def waits() -> bool:
        return any(isinstance(each.fact, NodeSuspended) for each in await run.facts())

    await until(waits, "an item waits for its signal")


def test_what_is_done_is_not_done_again_for_one_that_sleeps() -> None:
    calls: list[str] = []
    settings = fresh()

    async def again(cluster: Harness, run: Run, name: str, item: int | None) -> None:
        for _ in range(3):
            await cluster.engine.backend.queue.send(run.id, [splitting.token(run, name, item)])
            await until_queued(settings, 0, "default")

    async def go() -> None:
        async with engines(settings, count=2, registry=counting(calls), in_place=False) as cluster:
            held = kind("wait", resume="signal", name="go")
            run = await cluster.start(splitting.called_and_held(held), {"items": [0, 1, 2]})
            await _asleep(run)
            await until_queued(settings, 0, "default")
            await again(cluster, run, "c", 0)
            await again(cluster, run, "s", None)
            await cluster.engine.services.executions.signal(run.id, "go", b'"heard"')
            await run.end()
            told = await run.document()
            assert (told["output"], runs(told, "g")) == ([{"did": "c"}, "heard", {"did": "c"}], 1)

    asyncio.run(go())
    assert sorted(calls) == splitting.CALLED
