"""A cancel needs the journal alone: it succeeds while the state store is away, and takes effect."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tests.support.api_server import API, WAITS, RunningServer, running_server
from tests.support.async_test import async_test
from tests.support.backends import stores
from tests.support.services.redis_server import RedisServer
from tests.support.waiting import until


@pytest.fixture
def redis() -> Iterator[RedisServer]:
    """A server that the test may stop."""
    server = RedisServer()
    yield server
    server.stop()


async def _waits(server: RunningServer, execution: str) -> bool:
    return bool((await server.get(f"/executions/{execution}/explain"))["waiting"])


async def _cancel_without_redis(folder: Path, redis: RedisServer) -> None:
    settings = msgspec.structs.replace(stores(folder), nodes=(), state=redis.url, queue=redis.url)
    async with running_server(folder, on=settings) as server:
        await server.deploy(WAITS)
        started = await server.http.post(f"{API}/workflows/waits/executions", json={"input": {}})
        execution = started.json()["execution_id"]
        await until(lambda: _waits(server, execution), "the execution waits", 60)
        await asyncio.to_thread(redis.kill)
        try:
            cancelled = await server.http.post(
                f"{API}/executions/{execution}/cancel", json={"reason": "away"}
            )
            shown = await server.get(f"/executions/{execution}")
        finally:
            await asyncio.to_thread(redis.restart)
        assert (cancelled.status_code, cancelled.json()["status"]) == (200, "cancelled"), cancelled.text
        assert (shown["status"], shown["error"]["message"]) == ("cancelled", "away")
        log = (await server.get("/audit-log", params={"action": "execution.cancel"}))["entries"]
        assert [each["outcome"] for each in log] == ["asked"]
        assert (await server.client.wait(execution, 120)).status == "cancelled"


def test_cancel_with_killed_redis_succeeds(redis: RedisServer, tmp_path: Path) -> None:
    async_test(_cancel_without_redis)(tmp_path, redis)
