"""Draining of workers over HTTP, on both backends."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from tests.support.api_server import DEADLINE, HELLO, RunningServer, run
from tests.support.backends import stores
from tests.support.waiting import until


async def check_drain(server: RunningServer) -> None:
    client = server.client
    await server.deploy(HELLO)
    (own,) = await client.workers()
    assert (own.ready, own.state) == (True, "ready")

    async def is_drained() -> bool:
        return (await client.workers())[0].state == "drained"

    async def is_ready() -> bool:
        return (await client.workers())[0].state == "ready"

    assert (await client.drain_worker(own.id)).draining
    await until(is_drained, "the worker is drained", DEADLINE)
    started = await client.start("hello", {"name": "x"})
    assert (await client.execution(started.execution_id)).status == "running"
    assert not (await client.resume_worker(own.id)).draining
    await until(is_ready, "the worker is ready", DEADLINE)
    assert (await started.wait(DEADLINE)).status == "completed"

    refused = await server.post("/workers/nobody/drain", None, 404)
    assert refused["code"] == "UNKNOWN_WORKER"
    logged = [each.action async for each in client.log() if each.target == own.id]
    assert sorted(logged) == ["worker.drain", "worker.resume"]


def test_drained_worker_runs_nothing_until_it_is_resumed(tmp_path: Path) -> None:
    run(tmp_path, check_drain)


def test_drained_worker_runs_nothing_until_it_is_resumed_on_a_cluster(tmp_path: Path) -> None:
    run(tmp_path, check_drain, on=replace(stores(tmp_path), nodes=(), grace=1.0, heartbeat=0.2))
