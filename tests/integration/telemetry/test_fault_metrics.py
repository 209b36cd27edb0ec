"""Metrics of faults: each is counted once."""

from __future__ import annotations

import asyncio
from pathlib import Path

from rune.core.execution.decision import FinishExecution
from rune.core.execution.fact import NodeResult
from rune.core.execution.outcome import Error
from rune.server.health import MetricsEndpoint
from tests.integration.telemetry.conftest import MonitoredCluster
from tests.integration.telemetry.nodes import Gate
from tests.integration.telemetry.scrapes import sample, samples
from tests.integration.telemetry.test_cluster import plan_of
from tests.integration.telemetry.workflows import BLOCKING, OTHER_QUEUE
from tests.support.api_server import WAITS, RunningServer, run
from tests.support.waiting import until

NODES = ("tests.integration.telemetry.nodes",)


async def _scrape(server: RunningServer) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return samples((await server.http.get("/metrics")).text)


def test_second_result_counts_as_refused_twin(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        await server.deploy(BLOCKING)
        Gate.opened = asyncio.Event()
        started = await server.client.start("holds")
        await until(lambda: server.engine.busy == 1)
        first = NodeResult(1, (), server.engine.backend.clock.now(), "ok")
        await server.engine.backend.journal.record(started.execution_id, [first])
        Gate.opened.set()
        await server.client.wait(started.execution_id, 60)
        found = await _scrape(server)
        assert sample(found, "rune_duplicate_results_total") == 1
        assert sample(found, "rune_node_duration_seconds_count", type="tele.holds", status="ok") == 0
        assert sample(found, "rune_executions_ended_total", status="completed", outcome="completed") == 1

    run(tmp_path, work, nodes=NODES)


def test_rebuilt_execution_counts_as_fold(tmp_path: Path) -> None:
    async def begin(server: RunningServer) -> str:
        await server.deploy(WAITS)
        return (await server.client.start("waits")).execution_id

    async def end(server: RunningServer) -> None:
        await server.client.signal(execution, "go", 1)
        await server.client.wait(execution, 60)
        found = await _scrape(server)
        assert sample(found, "rune_folds_total") >= 1  # it may be unloaded and rebuilt once more
        assert sample(found, "rune_starts_accepted_total") == 0
        assert sample(found, "rune_executions_ended_total", status="completed", outcome="completed") == 1

    execution = run(tmp_path, begin)
    run(tmp_path, end)


def test_dead_letter_is_open_until_resolved(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        await server.deploy(WAITS)
        execution = (await server.client.start("waits")).execution_id
        finish = FinishExecution("failed", Error("DEAD_LETTERED", "by a test", {}, True))
        await server.engine.finisher.finish(execution, finish, server.engine.backend.clock.now())
        found = await _scrape(server)
        assert sample(found, "rune_dead_letters_total", code="DEAD_LETTERED") == 1
        assert sample(found, "rune_dead_letters_open") == 1
        await server.engine.backend.journal.resolve_dead_letter(execution, "dropped")
        while sample(await _scrape(server), "rune_dead_letters_open"):
            pass

    run(tmp_path, work)


def test_queue_without_worker_has_depth_and_age(monitored: MonitoredCluster) -> None:
    async def work() -> None:
        async with monitored.client_engine() as engine:
            plan = plan_of(engine, OTHER_QUEUE)
            executions = [(await engine.start(plan, b"{}"))[0].id for _ in range(3)]
            scrape = MetricsEndpoint(engine)
            async with asyncio.timeout(120):
                found = samples((await scrape.text())[0].decode())
                assert sample(found, "rune_queue_depth", queue="gpu") == 3
                assert sample(found, "rune_queue_held", queue="gpu") == 0
                while sample(found, "rune_queue_age_seconds", queue="gpu") <= 0:
                    found = samples((await scrape.text())[0].decode())
            for each in executions:
                await engine.services.executions.cancel(each)

    asyncio.run(work())
