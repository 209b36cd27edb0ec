"""Metrics of a scrape match the journal."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.integration.telemetry.nodes import Gate
from tests.integration.telemetry.scrapes import journal_counts, sample, samples, values_by_labels
from tests.integration.telemetry.workflows import BLOCKING, FAILING, MIXED
from tests.support.api_server import RunningServer, run
from tests.support.waiting import until
from tests.support.workflows import fail, of_type, split, workflow

NODES = ("tests.integration.telemetry.nodes",)
RUNS = 20


async def _scrape(server: RunningServer) -> str:
    answer = await server.http.get("/metrics")
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    return answer.text


def test_metrics_match_journal_under_load(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        await server.deploy(MIXED, FAILING)
        started = [
            asyncio.create_task(server.ended(workflow, {"items": [1, 2, 3]}))
            for workflow in ("mixed", "fails")
            for _ in range(RUNS)
        ]
        running = samples(await _scrape(server))
        executions = await asyncio.gather(*started)
        while sample(found := samples(await _scrape(server)), "rune_queue_depth", queue="default"):
            pass  # store statistics are up to a second old
        expected = await journal_counts(server.engine, executions)

        assert values_by_labels(found, "rune_node_duration_seconds_count") == expected.runs
        assert (
            values_by_labels(found, "rune_executions_ended_total")
            == expected.ended
            == {("completed", "completed"): RUNS, ("failed", "halted"): RUNS}  # outcome, status
        )
        assert values_by_labels(found, "rune_execution_duration_seconds_count") == expected.ended
        assert sample(found, "rune_starts_accepted_total") == 2 * RUNS
        assert sample(found, "rune_retries_total", type="tele.flaky") == expected.attempts == RUNS
        assert sample(found, "rune_join_wait_seconds_count") == expected.joins > 0
        assert sample(found, "rune_timer_lag_seconds_count", kind="retry") == RUNS
        assert sample(found, "rune_timer_lag_seconds_count", kind="wait") == expected.waits == RUNS
        assert sample(found, "rune_duplicate_results_total") == sample(found, "rune_dead_letters_open") == 0
        assert sample(found, "rune_slots_busy") == 0
        assert sample(found, "rune_live_members", role="worker") == 1
        assert sample(running, "rune_starts_accepted_total") <= 2 * RUNS

    run(tmp_path, work, nodes=NODES)


def test_queue_depth_and_age_count_waiting_tokens(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        await server.deploy(BLOCKING)
        Gate.opened = asyncio.Event()
        started = [asyncio.create_task(server.ended("holds")) for _ in range(4)]
        try:
            while sample(found := samples(await _scrape(server)), "rune_queue_depth", queue="default") < 3:
                pass
            assert sample(found, "rune_slots_busy") == sample(found, "rune_slots") == 1
            assert sample(found, "rune_queue_depth", queue="default") == 3
            first = sample(found, "rune_queue_age_seconds", queue="default")
            while sample(samples(await _scrape(server)), "rune_queue_age_seconds", queue="default") <= first:
                pass
        finally:
            Gate.opened.set()
        await asyncio.gather(*started)
        await until(lambda: server.engine.busy == 0)
        (depth,) = await server.engine.backend.queue.depths()  # type: ignore[attr-defined]
        assert (depth.waiting, depth.age) == (0, 0)

    run(tmp_path, work, slots=1, nodes=NODES)


def test_metrics_require_api_key(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        assert (await server.http.get("/metrics", headers={"Authorization": "Bearer no"})).status_code == 401
        assert (await server.http.get("/metrics")).status_code == 200

    run(tmp_path, work, key="k" * 40)


def test_blocked_event_loop_is_counted_and_shown(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def work(server: RunningServer) -> None:
        assert (await server.http.get("/readyz")).json() == {"status": "ready"}
        await server.deploy({**workflow("start>b", b=of_type("tele.block", seconds=1.6)), "id": "blocks"})
        await server.ended("blocks")

        async def counted() -> bool:
            return sample(samples(await _scrape(server)), "rune_loop_blocks_total") >= 1

        await until(counted, "the block is counted", 60.0)
        found = samples(await _scrape(server))
        assert sample(found, "rune_loop_blocked_seconds_total") > 1.0
        shown = (await server.http.get("/readyz")).json()
        assert shown["status"] == "ready"
        assert shown["loop_blocked"]["count"] >= 1
        assert shown["loop_blocked"]["longest_s"] > 1.0

    with caplog.at_level("WARNING", "rune.watchdog"):
        run(tmp_path, work, nodes=NODES)
    assert "block_the_loop" in caplog.text


def test_failed_items_are_counted_in_metrics(tmp_path: Path) -> None:
    document = workflow("start>s s>f f>g", s=split(), f=fail(), g=of_type("aggregator"))

    async def work(server: RunningServer) -> None:
        await server.deploy({**document, "id": "items"})
        await server.ended("items", {"items": [1, 2, 3]})
        assert sample(samples(await _scrape(server)), "rune_items_failed_total") == 3

    run(tmp_path, work)
