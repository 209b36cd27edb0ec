"""Every figure of a scrape is the journal's."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.acceptance.api.running import Served, run
from tests.integration.telemetry.acting_nodes import Gate
from tests.integration.telemetry.documents import FAILS, HOLDS, MIXED
from tests.integration.telemetry.samples import by, of, samples, truth
from tests.support.waiting import until

NODES = ("tests.integration.telemetry.acting_nodes",)
EACH = 20


async def _scraped(server: Served) -> str:
    answer = await server.http.get("/metrics")
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    return answer.text


def test_a_scrape_under_load_has_the_figures_of_the_journal(tmp_path: Path) -> None:
    async def work(server: Served) -> None:
        await server.deploy(MIXED, FAILS)
        started = [
            asyncio.create_task(server.ended(workflow, {"items": [1, 2, 3]}))
            for workflow in ("mixed", "fails")
            for _ in range(EACH)
        ]
        under_way = samples(await _scraped(server))
        executions = await asyncio.gather(*started)
        while of(found := samples(await _scraped(server)), "rune_queue_depth", queue="default"):
            pass  # what the stores say is as old as a second
        told = await truth(server.engine, executions)

        assert by(found, "rune_node_duration_seconds_count") == told.runs
        assert (
            by(found, "rune_executions_ended_total")
            == told.ended
            == {("completed",): EACH, ("halted",): EACH}
        )
        assert by(found, "rune_execution_duration_seconds_count") == told.ended
        assert of(found, "rune_starts_accepted_total") == 2 * EACH
        assert of(found, "rune_retries_total", type="tele.flaky") == told.attempts == EACH
        assert of(found, "rune_join_wait_seconds_count") == told.joins > 0
        assert of(found, "rune_timer_lag_seconds_count", kind="retry") == EACH
        assert of(found, "rune_timer_lag_seconds_count", kind="wait") == told.waits == EACH
        assert of(found, "rune_twins_refused_total") == of(found, "rune_dead_letters_open") == 0
        assert of(found, "rune_slots_busy") == 0
        assert of(found, "rune_live_members", role="worker") == 1
        assert of(under_way, "rune_starts_accepted_total") <= 2 * EACH

    run(tmp_path, work, nodes=NODES)


def test_what_waits_for_a_slot_is_the_depth_of_the_queue_and_has_an_age(tmp_path: Path) -> None:
    async def work(server: Served) -> None:
        await server.deploy(HOLDS)
        Gate.opened = asyncio.Event()
        started = [asyncio.create_task(server.ended("holds")) for _ in range(4)]
        try:
            while of(found := samples(await _scraped(server)), "rune_queue_depth", queue="default") < 3:
                pass
            assert of(found, "rune_slots_busy") == of(found, "rune_slots") == 1
            assert of(found, "rune_queue_depth", queue="default") == 3
            first = of(found, "rune_queue_age_seconds", queue="default")
            while of(samples(await _scraped(server)), "rune_queue_age_seconds", queue="default") <= first:
                pass
        finally:
            Gate.opened.set()
        await asyncio.gather(*started)
        await until(lambda: server.engine.busy == 0)
        (depth,) = await server.engine.backend.queue.depths()  # type: ignore[attr-defined]
        assert (depth.waiting, depth.age) == (0, 0)

    run(tmp_path, work, slots=1, nodes=NODES)


def test_metrics_are_behind_the_gate_of_the_api(tmp_path: Path) -> None:
    async def work(server: Served) -> None:
        assert (await server.http.get("/metrics", headers={"Authorization": "Bearer no"})).status_code == 401
        assert (await server.http.get("/metrics")).status_code == 200

    run(tmp_path, work, key="k" * 40)
