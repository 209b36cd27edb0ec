"""Workers that stop, crash, serve other queues, or lack node types."""

from __future__ import annotations

import asyncio
import json
import os
import pathlib
from typing import Any

import pytest

from rune import bootstrap
from rune.ports.processes import EXPIRY_S
from rune.runtime.engine import Engine
from rune.testing.harness import Harness, Run
from tests.support.cli_process import until
from tests.support.cluster_cli import command_line, with_id
from tests.support.clusters import Cluster
from tests.support.documents import document, node
from tests.support.in_process_cli import InProcessCli
from tests.support.waiting import until as until_async

pytestmark = pytest.mark.long

TIMEOUT_S = 120.0
GATED = document(
    [
        node("start", "input"),
        node("e1", "ledger.gate", {"opens": "{{ $trigger.pipe }}"}),
        node("e2", "ledger.effect", {"did": "e2"}),
        node("out", "output", {"value": "{{ [$e1.said, $e2.did] }}"}),
    ],
    "start>e1",
    "e1>e2",
    "e2>out",
)


def _process_workflow(queue: str | None) -> dict[str, Any]:
    more: dict[str, Any] = {} if queue is None else {"queue": queue}
    return document(
        [
            node("start", "input"),
            node("at", "place.process", **more),
            node("out", "output", {"value": "$at"}),
        ],
        "start>at",
        "at>out",
        id=f"where-{queue}",
    )


def _status(rune: InProcessCli, name: str) -> str:
    return str(rune.json("show", name)["status"])


def test_stopped_worker_finishes_running_node(workerless_cluster: Cluster, tmp_path: pathlib.Path) -> None:
    rune = command_line(workerless_cluster.fleet)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    first = workerless_cluster.start_worker()

    async def begin() -> str:
        async with workerless_cluster.connect() as (engine, _):
            run = await Harness(engine, None).start(with_id(GATED, "drained"), {"pipe": str(pipe)})
            return run.id

    execution = asyncio.run(begin())
    with pipe.open("w") as gate:  # opens when the node reads: it has made its effect and is running
        first.process.terminate()
        first.wait_for_output("1 nodes still running")
        gate.write("finished")
    assert first.process.wait(TIMEOUT_S) == 0
    assert {key: count for key, count in workerless_cluster.effects().items() if execution in key} == {
        f"{execution}:e1@/#1": 1
    }
    assert _status(rune, execution) == "running"
    pids = [each["pid"] for each in rune.json("workers")["workers"]]
    assert first.process.pid not in pids

    workerless_cluster.start_worker()
    until(lambda: _status(rune, execution) == "completed" or None, "another worker continues")
    assert rune.json("show", execution)["output"] == ["finished", "e2"]
    effects = {key: count for key, count in workerless_cluster.effects().items() if execution in key}
    assert effects == {f"{execution}:e1@/#1": 1, f"{execution}:e2@/#1": 1}
    assert rune.json("verify", execution)["violations"] == 0


def test_worker_returns_token_of_unknown_node_type(workerless_cluster: Cluster) -> None:
    old = workerless_cluster.start_worker(RUNE_NODES="")

    async def go() -> None:
        async with workerless_cluster.connect() as (engine, _):
            harness = Harness(engine, None)
            run = await harness.start(_process_workflow(None))
            await asyncio.to_thread(old.wait_for_output, f"{run.id} is left to other workers")
            plain = await harness.start(
                document([node("start", "input"), node("do")], "start>do", id="plain")
            )
            await plain.end(TIMEOUT_S)  # the worker still runs node types that it knows
            new = await asyncio.to_thread(workerless_cluster.start_worker)
            await run.end(TIMEOUT_S)
            assert (await run.document())["output"] == new.process.pid

    asyncio.run(go())
    assert old.alive


def test_node_runs_only_on_workers_of_its_queue(workerless_cluster: Cluster) -> None:
    plain = workerless_cluster.start_worker()

    async def go() -> None:
        async with workerless_cluster.connect() as (engine, _):
            harness = Harness(engine, None)
            on_gpu = await harness.start(_process_workflow("gpu"))
            for _ in range(3):
                on_default = await harness.start(_process_workflow(None))
                await on_default.end(TIMEOUT_S)
                assert (await on_default.document())["output"] == plain.process.pid
            assert not on_gpu.ending.done()
            special = await asyncio.to_thread(workerless_cluster.start_worker, "--queues", "gpu")
            await on_gpu.end(TIMEOUT_S)
            assert await _output(on_gpu) == special.process.pid
            more = await asyncio.gather(*(_run(harness, "gpu") for _ in range(5)))
            assert set(more) == {special.process.pid}
            await asyncio.to_thread(special.stop)
            both = await asyncio.to_thread(workerless_cluster.start_worker, "--queues", "gpu,default")
            await asyncio.to_thread(plain.stop)
            assert await _run(harness, "gpu") == await _run(harness, None) == both.process.pid

    asyncio.run(go())


async def _output(run: Run) -> Any:
    return (await run.document())["output"]


async def _run(harness: Harness, queue: str | None) -> Any:
    run = await harness.start(_process_workflow(queue))
    await run.end(TIMEOUT_S)
    return await _output(run)


def test_killed_worker_is_unlisted_after_expiry(workerless_cluster: Cluster) -> None:
    gone = workerless_cluster.start_worker()

    async def seen_at() -> int | None:
        listed = await bootstrap.list_processes(workerless_cluster.settings)
        return next((each.seen_at for each in listed if each.pid == gone.process.pid), None)

    async def go(engine: Engine) -> None:
        last = await seen_at()
        assert last is not None
        gone.kill()
        last = await seen_at() or last

        async def vanished() -> bool:
            before = await engine.backend.state.now()  # type: ignore[attr-defined]
            listed = await seen_at()
            assert listed is None or before - last <= EXPIRY_S * 1000
            return listed is None

        await until_async(vanished, "it is no longer listed", TIMEOUT_S)
        assert await engine.backend.state.now() - last > EXPIRY_S * 1000  # type: ignore[attr-defined]

    async def run() -> None:
        async with workerless_cluster.connect() as (engine, _):
            await go(engine)

    asyncio.run(run())


def test_returned_token_stays_in_its_queue(workerless_cluster: Cluster) -> None:
    old = workerless_cluster.start_worker(RUNE_NODES="")
    workerless_cluster.start_worker("--queues", "gpu")

    async def go() -> None:
        async with workerless_cluster.connect() as (engine, _):
            harness = Harness(engine, None)
            runs = [await harness.start(_process_workflow(None)) for _ in range(8)]
            await asyncio.to_thread(old.wait_for_output, "is left to other workers", 3)
            assert not any(run.ending.done() for run in runs)
            new = await asyncio.to_thread(workerless_cluster.start_worker)
            for run in runs:
                await run.end(TIMEOUT_S)
            assert {await _output(run) for run in runs} == {new.process.pid}
            left = [line for line in old.output().splitlines() if "is left to other workers" in line]
            named = [run for run in runs if any(run.id in line for line in left)]
            assert len(named) < len(runs), "executions with one reason share a line"

    asyncio.run(go())


def test_worker_writes_a_warning_that_repeats_once_with_its_number(
    workerless_cluster: Cluster, tmp_path: pathlib.Path
) -> None:
    rune = command_line(workerless_cluster.fleet)
    worker = workerless_cluster.start_worker()
    text = "the same warning again"
    raw = document(
        [node("start", "input"), node("warn", "place.warnings", {"text": text, "times": 5_000})],
        "start>warn",
        id="warnings",
    )
    path = tmp_path / "warnings.json"
    path.write_text(json.dumps(raw))
    assert rune.json("run", str(path), "--no-worker")["status"] == "completed"
    worker.stop()
    lines = [each for each in worker.output().splitlines() if text in each]
    written = sum(1 if "(repeated " not in each else 0 for each in lines)
    repeated = sum(int(each.rpartition("(repeated ")[2].split()[0]) for each in lines if "(repeated " in each)
    assert written + repeated == 5_000
    assert len(lines) < 50, "identical lines are summarized"
