"""Messages that are redelivered for an execution that sleeps."""

from __future__ import annotations

import asyncio

from rune.testing.harness import Harness, Run
from tests.support.backends import ClusterBackend, backends, until_suspended
from tests.support.redelivery import CALLED, held_item_workflow, token_of
from tests.support.workflows import recording_registry, success_count, wait_for_signal


@backends("redis-travelling")
def test_redelivered_tokens_of_sleeping_execution_run_nothing_again(backend: ClusterBackend) -> None:
    calls: list[str] = []

    async def redeliver(engine: Harness, run: Run, name: str, item: int | None) -> None:
        for _ in range(3):
            await engine.engine.backend.queue.send(run.id, [token_of(run, name, item)])
            await backend.wait_for_queue_length(0, "default")

    async def go() -> None:
        async with backend.open(count=2, registry=recording_registry(calls)) as engine:
            run = await engine.start(held_item_workflow(wait_for_signal()), {"items": [0, 1, 2]})
            await until_suspended(run)
            await backend.wait_for_queue_length(0, "default")
            await redeliver(engine, run, "c", 0)
            await redeliver(engine, run, "s", None)
            await engine.engine.services.executions.signal(run.id, "go", b'"received"')
            await run.end()
            result = await run.document()
            assert result["output"] == [{"did": "c"}, "received", {"did": "c"}]
            assert success_count(result, "g") == 1

    asyncio.run(go())
    assert sorted(calls) == CALLED
