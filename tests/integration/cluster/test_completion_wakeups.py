"""A caller that waits for an execution is woken by its end: no poll is on the way to the answer."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rune.runtime.lifecycle import completion_waiters
from rune.server.live import feed
from tests.support.api_server import API, RunningServer, running_server
from tests.support.backends import Backend, EmbeddedBackend, backends, redis_command
from tests.support.waiting import until
from tests.support.workflows import fail, wait_for_signal, workflow

HOUR_S = 3600.0
TIMEOUT_S = 60.0
COMPLETES = workflow("start>w", w=wait_for_signal())
FAILS = workflow("start>w w>bad", w=wait_for_signal(), bad=fail())


@pytest.fixture(autouse=True)
def _no_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(completion_waiters, "POLL_INTERVAL_S", HOUR_S)
    monkeypatch.setattr(feed, "MIN_PAUSE_S", HOUR_S)
    monkeypatch.setattr(feed, "MAX_PAUSE_S", HOUR_S)


async def _ended_while_awaited(server: RunningServer, document: dict[str, Any]) -> dict[str, Any]:
    """Start an execution, wait for it over HTTP, and let it end only then; return the response."""
    started = await server.client.start_definition(document)
    waiting = asyncio.create_task(server.http.get(f"{API}/executions/{started.id}", params={"wait": 60}))
    await until(lambda: started.id in server.engine.completion_waiters.executions, "the server waits for it")
    await server.client.signal(started.id, "go")
    async with asyncio.timeout(TIMEOUT_S):
        found: dict[str, Any] = (await waiting).json()
    return found


@backends("embedded", "redis", "rabbitmq")
@pytest.mark.parametrize(("document", "status"), [(COMPLETES, "completed"), (FAILS, "halted")])
def test_wait_over_http_is_answered_by_the_end(
    backend: Backend, document: dict[str, Any], status: str, tmp_path: Path
) -> None:
    """On a cluster another engine runs the nodes."""

    async def go() -> dict[str, Any]:
        if isinstance(backend, EmbeddedBackend):
            async with running_server(tmp_path) as server:
                return await _ended_while_awaited(server, document)
        settings = msgspec.structs.replace(backend.settings, nodes=())
        async with backend.open(), running_server(tmp_path, on=settings, working=False) as server:
            return await _ended_while_awaited(server, document)

    assert asyncio.run(go())["status"] == status


@backends("redis", "rabbitmq")
def test_wait_for_execution_of_another_engine_ends_with_it(backend: Backend) -> None:
    async def go() -> str:
        async with backend.open(), backend.open(roles=frozenset()) as waiting:
            run = await waiting.start(workflow("start>a", a={"type": "noop"}))
            return (await run.end(TIMEOUT_S)).status

    assert asyncio.run(go()) == "completed"


@backends("redis")
def test_end_during_a_lost_subscription_is_found_when_it_is_restored(backend: Backend) -> None:
    async def go() -> str:
        async with backend.open() as worker, backend.open(roles=frozenset()) as waiting:
            run = await waiting.start(COMPLETES)
            await redis_command("CLIENT", "KILL", "TYPE", "pubsub")
            await worker.engine.services.executions.signal(run.id, "go")
            return (await run.end(TIMEOUT_S)).status

    assert asyncio.run(go()) == "completed"


def test_wait_that_is_over_leaves_no_waiter(tmp_path: Path) -> None:
    async def go() -> set[str]:
        async with running_server(tmp_path) as server:
            started = await server.client.start_definition(COMPLETES)
            found = await server.get(f"/executions/{started.id}?wait=0.01")
            assert found["status"] == "running"
            return set(server.engine.completion_waiters.executions)

    assert asyncio.run(go()) == set()
