"""Which nodes run now, as every process of a backend learns it."""

from __future__ import annotations

import asyncio
from typing import Any

from rune.ports.processes import LiveReport, RunningNode
from rune.testing.harness import Harness, Run
from tests.support.backends import Backend, backends, open_engines
from tests.support.gated_nodes import gate, gated_registry
from tests.support.waiting import until
from tests.support.workflows import of_type, workflow

GATED = workflow("start>w", w=of_type("gated.wait", name="g"))
RETRIED = workflow(
    "start>t", t={**of_type("gated.second_try", name="g"), "retry": {"max_attempts": 3, "initial_delay": 0}}
)


async def running_nodes(engine: Harness, run: Run, count: int) -> list[RunningNode]:
    """Wait until so many nodes run, and return them."""
    found: list[RunningNode] = []

    async def listed() -> bool:
        nonlocal found
        found = (await engine.engine.live.running(run.id)).nodes
        return len(found) == count

    await until(listed, f"{count} nodes run", 60.0)
    return found


@backends("embedded", "redis", "rabbitmq")
def test_running_node_is_told_with_worker_attempt_and_progress(backend: Backend) -> None:
    async def go() -> None:
        async with backend.open(registry=gated_registry()) as engine:
            before = engine.engine.backend.clock.now()
            run = await engine.start(GATED)
            (shown,) = await running_nodes(engine, run, 1)
            assert (run.plan.ids[shown.node], shown.path, shown.attempt) == ("w", (), 1)
            assert shown.worker == engine.engine.name
            assert shown.since >= before - 1_000

            async def progressed() -> bool:
                found = (await engine.engine.live.running(run.id)).nodes
                return [each.progress for each in found] == ["40%"]

            await until(progressed, "the progress is told", 60.0)
            gate("g").set()
            await run.end()
            assert await running_nodes(engine, run, 0) == []

    asyncio.run(go())


@backends("embedded")
def test_lines_reach_follower_although_another_request_asked_what_runs(backend: Backend) -> None:
    async def go() -> None:
        async with backend.open(registry=gated_registry()) as engine:
            live = engine.engine.live
            lines: list[str] = []
            run = await engine.start(GATED)
            live.follow(run.id, lambda _nodes, found: lines.extend(each.message for each in found))
            following = asyncio.create_task(live.run())
            await running_nodes(engine, run, 1)
            gate("g").set()
            await run.end()

            async def told() -> bool:
                await live.running(run.id)
                return any(each.startswith("behind the gate") for each in lines)

            await until(told, "the line is told", 60.0)
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)

    asyncio.run(go())


@backends("embedded", "redis", "rabbitmq")
def test_running_node_is_told_with_number_of_its_attempt(backend: Backend) -> None:
    async def go() -> int:
        async with backend.open(registry=gated_registry()) as engine:
            run = await engine.start(RETRIED)

            async def second() -> bool:
                found = (await engine.engine.live.running(run.id)).nodes
                return [each.attempt for each in found] == [2]

            await until(second, "the second attempt runs", 60.0)
            gate("g").set()
            await run.end()
            return 2

    assert asyncio.run(go()) == 2


@backends("redis", "rabbitmq")
def test_process_without_worker_learns_what_workers_run(backend: Backend) -> None:
    async def go() -> tuple[str, list[RunningNode], bool]:
        async with backend.open(registry=gated_registry()) as worker:
            run = await worker.start(GATED)
            async with open_engines(
                backend.settings, registry=gated_registry(), roles=frozenset({"api"})
            ) as api:
                found = await running_nodes(api, run, 1)
                complete = (await api.engine.live.running(run.id)).complete
            gate("g").set()
            await run.end()
            return worker.engine.name, found, complete

    name, found, complete = asyncio.run(go())
    assert [each.worker for each in found] == [name]
    assert complete


@backends("redis")
def test_workers_report_nothing_that_is_not_followed(backend: Backend) -> None:
    async def go() -> list[LiveReport]:
        reports: list[LiveReport] = []
        async with backend.open(registry=gated_registry()) as engine:
            channel: Any = engine.engine.backend.live
            listening = asyncio.Event()
            listener = asyncio.create_task(channel.listen(reports.append, listening))
            await listening.wait()
            for _ in range(5):
                run = await engine.start(workflow("start>q", q=of_type("gated.quiet")))
                await run.end()
            # A report that is asked for arrives after all that were sent before.
            await engine.engine.live.running("asked")
            await until(lambda: reports, "the answer arrives", 30.0)
            listener.cancel()
            await asyncio.gather(listener, return_exceptions=True)
        return reports

    reports = asyncio.run(go())
    assert [list(each.running) for each in reports] == [["asked"]]


@backends("embedded", "redis", "rabbitmq")
def test_follower_is_told_of_start_and_end_of_a_node(backend: Backend) -> None:
    async def go() -> list[list[str]]:
        changes: list[list[str]] = []
        async with backend.open(registry=gated_registry()) as engine:
            run = await engine.start(GATED)
            live = engine.engine.live
            live.follow(
                run.id, lambda nodes, lines: changes.append([run.plan.ids[each.node] for each in nodes])
            )
            following = asyncio.create_task(live.run())
            await until(lambda: ["w"] in changes, "the start is told", 60.0)
            gate("g").set()
            await run.end()
            await until(lambda: changes and changes[-1] == [], "the end is told", 60.0)
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
        return changes

    assert asyncio.run(go())[0] == ["w"]
