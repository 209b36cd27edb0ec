"""Health endpoints of workers and schedulers on a separate port."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import msgspec
import pytest

import rune
from tests.support.backends import stores
from tests.support.cli_process import until
from tests.support.services.fleet import Fleet, Process, fleet
from tests.support.services.postgres import free_port
from tests.support.services.redis_server import RedisServer

pytestmark = pytest.mark.long

TWO_BEATS = 10.0
SOON = 100.0


def _ask(port: int, path: str) -> tuple[int, dict[str, str]] | None:
    try:
        answer = httpx.get(f"http://127.0.0.1:{port}{path}", trust_env=False)
    except httpx.TransportError:
        return None
    return answer.status_code, answer.json()


def _is(port: int, status: int) -> None:
    def look() -> bool | None:
        found = _ask(port, "/readyz")
        return True if found is not None and found[0] == status else None

    until(look, f"/readyz answers {status}")


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisServer]:
    server = RedisServer()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory, redis: RedisServer) -> Iterator[Fleet]:
    folder = tmp_path_factory.mktemp("health")
    settings = msgspec.structs.replace(stores(folder), state=redis.url, queue=redis.url)
    environment = {"RUNE_NODES": ",".join(settings.nodes), "RUNE_TEST_LEDGER": str(folder / "ledger")}
    with fleet(folder, settings, workers=0, schedulers=0, environment=environment) as made:
        yield made


@pytest.mark.parametrize("role", ["worker", "scheduler"])
def test_worker_and_scheduler_serve_health(processes: Fleet, role: str) -> None:
    port = free_port()
    process = processes.start(role, "--health-port", str(port))  # type: ignore[arg-type]
    process.wait_ready()
    _is(port, 200)
    assert _ask(port, "/healthz") == (200, {"status": "ok"})
    result = _ask(port, "/version")
    assert result is not None
    assert result[1]["version"] == rune.__version__
    missing = httpx.get(f"http://127.0.0.1:{port}/api/v1/executions", trust_env=False)
    assert missing.status_code == 404
    assert process.stop() == 0
    assert _ask(port, "/healthz") is None


def test_worker_readiness_follows_its_store(processes: Fleet, redis: RedisServer) -> None:
    port = free_port()
    worker = processes.start("worker", RUNE_HEALTH_PORT=str(port))
    worker.wait_ready()
    _is(port, 200)
    redis.kill()
    gone_at = time.monotonic()
    _is(port, 503)
    assert time.monotonic() - gone_at < TWO_BEATS + SOON
    result = _ask(port, "/readyz")
    assert result is not None
    assert result[1]["code"] == "NOT_READY"
    assert _ask(port, "/healthz") == (200, {"status": "ok"})
    redis.restart()
    _is(port, 200)
    worker.kill()


def test_draining_worker_is_alive_but_not_ready(processes: Fleet, tmp_path: Path) -> None:
    from rune.client import Client
    from tests.integration.cluster.test_workers import GATED

    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    port = free_port()
    worker: Process = processes.start("worker", "--health-port", str(port))
    worker.wait_ready()
    with Client(processes.api().url) as client:
        client.start_definition({**GATED, "id": "drains"}, {"pipe": str(pipe)})
    with pipe.open("w") as gate:
        worker.process.terminate()
        worker.wait_for_output("1 nodes still running")
        _is(port, 503)
        result = _ask(port, "/readyz")
        assert result is not None
        assert result[1]["detail"] == "shutting down"
        assert _ask(port, "/healthz") == (200, {"status": "ok"})
        gate.write("done")
    assert worker.process.wait(60) == 0
