"""Draining a worker: it finishes what it holds and leaves everything else to the others, until it is resumed."""

from __future__ import annotations

import asyncio
import os

import pytest

from rune.core.execution.fact import NodeResult
from rune.ports.inspection import ReportsDepth
from rune.ports.processes import ProcessInfo
from rune.runtime.services.workers import NotAWorkerError, UnknownWorkerError
from rune.testing.harness import Harness, Run
from tests.support.backends import Backend, backends, end_status
from tests.support.gated_nodes import gate, gated_registry
from tests.support.waiting import until
from tests.support.workflows import of_type, workflow

GATED = workflow("start>w", w=of_type("gated.wait", name="g"))
EFFECT = workflow("start>e", e=of_type("noop", effectful=True))
HEARTBEAT_S = 0.2


async def processes(engine: Harness) -> list[ProcessInfo]:
    registry = engine.engine.backend.processes
    assert registry is not None
    return await registry.list()


async def own_process(engine: Harness) -> ProcessInfo:
    """Return the entry of the only process, once its first heartbeat was sent."""

    async def listed() -> bool:
        return bool(await processes(engine))

    await until(listed, "the process is listed", 60.0)
    (own,) = await processes(engine)
    return own


async def until_state(engine: Harness, name: str, *, draining: bool, busy: int) -> None:
    async def reached() -> bool:
        found = {each.name: (each.draining, each.busy) for each in await processes(engine)}
        return found[name] == (draining, busy)

    await until(reached, f"{name} has draining={draining}, busy={busy}", 60.0)


async def workers_of(run: Run) -> set[str]:
    facts = [each.fact for each in await run.facts()]
    return {each.worker for each in facts if isinstance(each, NodeResult) and each.worker}


@backends("redis", "rabbitmq")
def test_drained_worker_finishes_what_it_holds_and_leaves_the_rest(backend: Backend) -> None:
    async def go() -> None:
        options = {"registry": gated_registry(), "heartbeat": HEARTBEAT_S}
        async with backend.open(**options) as first:
            own = await own_process(first)
            held = await first.start(GATED)
            await until_state(first, own.name, draining=False, busy=1)
            await first.engine.services.workers.drain(own.name)
            await until_state(first, own.name, draining=True, busy=1)

            async with backend.open(**options) as second:
                runs = [await first.start(EFFECT) for _ in range(20)]
                for run in runs:
                    assert await end_status(second, run.id) == "completed"
                    assert await workers_of(run) == {second.engine.name}

            gate("g").set()
            await held.end(60.0)
            assert await workers_of(held) == {first.engine.name}
            await until_state(first, own.name, draining=True, busy=0)

            waiting = await first.start(EFFECT)
            await first.engine.services.workers.resume(own.name)
            await waiting.end(60.0)
            assert await workers_of(waiting) == {first.engine.name}

    asyncio.run(go())


@backends("redis")
def test_drain_of_unknown_process_or_scheduler_is_refused(backend: Backend) -> None:
    async def go() -> None:
        async with backend.open(roles=frozenset({"scheduler"})) as engine:
            own = await own_process(engine)
            with pytest.raises(UnknownWorkerError):
                await engine.engine.services.workers.drain("nobody")
            with pytest.raises(NotAWorkerError):
                await engine.engine.services.workers.drain(own.name)

    asyncio.run(go())


@backends("embedded")
def test_drained_embedded_engine_accepts_and_runs_nothing_until_resumed(backend: Backend) -> None:
    async def go() -> None:
        async with backend.open(registry=gated_registry()) as engine:
            held = await engine.start(GATED)
            await until(_busy(engine, 1), "the node runs", 60.0)
            workers = engine.engine.services.workers
            with pytest.raises(UnknownWorkerError):
                await workers.drain("nobody")
            await workers.drain(str(os.getpid()))
            assert engine.engine.draining
            gate("g").set()
            await held.end(60.0)

            run = await engine.start(EFFECT)
            queue = engine.engine.backend.queue
            assert isinstance(queue, ReportsDepth)
            assert [each.waiting for each in await queue.depths()] == [1]
            assert not run.ending.done()
            await workers.resume(str(os.getpid()))
            assert (await run.end(60.0)).status == "completed"

    asyncio.run(go())


def _busy(engine: Harness, count: int):  # type: ignore[no-untyped-def]
    async def reached() -> bool:
        return engine.engine.busy == count

    return reached
