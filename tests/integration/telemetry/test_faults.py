"""What goes wrong is counted, each once."""

from __future__ import annotations

import asyncio
from pathlib import Path

from rune.core.execution.decision import FinishExecution
from rune.core.execution.fact import NodeResult
from rune.core.execution.outcome import Error
from rune.server.monitoring import MetricsEndpoint
from tests.acceptance.api.running import WAITS, Served, run
from tests.integration.telemetry.acting_nodes import Gate
from tests.integration.telemetry.conftest import Watched
from tests.integration.telemetry.documents import ELSEWHERE, HOLDS
from tests.integration.telemetry.samples import of, samples
from tests.integration.telemetry.test_fleet import plan_of
from tests.support.waiting import until

NODES = ("tests.integration.telemetry.acting_nodes",)


async def _scraped(server: Served) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return samples((await server.http.get("/metrics")).text)


def test_a_second_result_is_a_twin(tmp_path: Path) -> None:
    async def work(server: Served) -> None:
        await server.deploy(HOLDS)
        Gate.opened = asyncio.Event()
        started = await server.client.start("holds")
        await until(lambda: server.engine.busy == 1)
        first = NodeResult(1, (), server.engine.backend.clock.now(), "ok")
        await server.engine.backend.journal.record(started.execution_id, [first])
        Gate.opened.set()
        await server.client.wait(started.execution_id, 60)
        found = await _scraped(server)
        assert of(found, "rune_twins_refused_total") == 1
        assert of(found, "rune_node_duration_seconds_count", type="tele.holds", status="ok") == 0
        assert of(found, "rune_executions_ended_total", status="completed") == 1

    run(tmp_path, work, nodes=NODES)


def test_an_execution_that_is_read_back_is_a_fold(tmp_path: Path) -> None:
    async def begin(server: Served) -> str:
        await server.deploy(WAITS)
        return (await server.client.start("waits")).execution_id

    async def end(server: Served) -> None:
        await server.client.signal(execution, "go", 1)
        await server.client.wait(execution, 60)
        found = await _scraped(server)
        assert of(found, "rune_folds_total") >= 1  # it may go back to sleep and be read once more
        assert of(found, "rune_starts_accepted_total") == 0
        assert of(found, "rune_executions_ended_total", status="completed") == 1

    execution = run(tmp_path, begin)
    run(tmp_path, end)


def test_a_dead_letter_is_counted_and_open_until_it_is_settled(tmp_path: Path) -> None:
    async def work(server: Served) -> None:
        await server.deploy(WAITS)
        execution = (await server.client.start("waits")).execution_id
        given_up = FinishExecution("failed", Error("DEAD_LETTERED", "told to", {}, True))
        await server.engine.finisher.finish(execution, given_up, server.engine.backend.clock.now())
        found = await _scraped(server)
        assert of(found, "rune_dead_letters_total", code="DEAD_LETTERED") == 1
        assert of(found, "rune_dead_letters_open") == 1
        await server.engine.backend.journal.resolve_dead_letter(execution, "dropped")
        while of(await _scraped(server), "rune_dead_letters_open"):
            pass

    run(tmp_path, work)


def test_a_queue_that_nobody_serves_is_deep_and_grows_old(watched: Watched) -> None:
    async def work() -> None:
        async with watched.asked() as engine:
            plan = plan_of(engine, ELSEWHERE)
            executions = [(await engine.start(plan, b"{}"))[0].id for _ in range(3)]
            scrape = MetricsEndpoint(engine)
            async with asyncio.timeout(120):
                found = samples((await scrape.text())[0].decode())
                assert of(found, "rune_queue_depth", queue="gpu") == 3
                assert of(found, "rune_queue_held", queue="gpu") == 0
                while of(found, "rune_queue_age_seconds", queue="gpu") <= 0:
                    found = samples((await scrape.text())[0].decode())
            for each in executions:
                await engine.services.executions.cancel(each)

    asyncio.run(work())
