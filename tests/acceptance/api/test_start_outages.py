"""A start needs the journal alone: it is accepted while the state store or the queue is away, and runs once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from rune.adapters.redis.client import Client
from rune.settings import Settings
from tests.support.api_server import API, HELLO, RunningServer, running_server
from tests.support.async_test import async_test
from tests.support.backends import stores
from tests.support.services.rabbitmq import Broker, mortal_broker
from tests.support.services.redis_server import RedisServer

pytestmark = pytest.mark.long

STARTS = 5
MAX_START_S = 5.0
"""Below the ten seconds after which a client of Redis or RabbitMQ gives up, with room for a busy machine."""

Act = Callable[[], None]


@pytest.fixture
def redis() -> Iterator[RedisServer]:
    """A server that the test may stop."""
    server = RedisServer()
    yield server
    server.thaw()
    server.stop()


@pytest.fixture
def rabbitmq() -> Iterator[tuple[Broker, str]]:
    """A broker that the test may stop, and a URL on it."""
    broker = mortal_broker()
    broker.start()
    with broker.vhost() as vhost:
        yield broker, broker.url(vhost)
        broker.thaw()


async def start_without_store(settings: Settings, folder: Path, leave: Act, come_back: Act) -> None:
    """Start executions while a store is away, and wait for their ends when it is back."""
    async with running_server(folder, on=settings) as server:
        await server.deploy(HELLO)
        await server.ended("hello", {"name": "warm"})
        await asyncio.to_thread(leave)
        try:
            started = await asyncio.gather(*(timed_start(server, each) for each in range(STARTS)))
        finally:
            await asyncio.to_thread(come_back)
        for execution, duration in started:
            assert (await server.client.wait(execution, 120)).status == "completed"
            assert duration < MAX_START_S
        listed = [each.execution_id async for each in server.client.executions()]
        assert sorted(listed[:-1]) == sorted(execution for execution, _ in started)


async def timed_start(server: RunningServer, number: int) -> tuple[str, float]:
    begun = asyncio.get_running_loop().time()
    answer = await server.http.post(
        f"{API}/workflows/hello/executions", json={"input": {"name": f"{number}"}}
    )
    assert answer.status_code == 202, answer.text
    return answer.json()["execution_id"], asyncio.get_running_loop().time() - begun


def on_redis(folder: Path, redis: RedisServer) -> Settings:
    return msgspec.structs.replace(stores(folder), nodes=(), state=redis.url, queue=redis.url)


def on_rabbitmq(folder: Path, redis: RedisServer, url: str) -> Settings:
    return msgspec.structs.replace(stores(folder), nodes=(), state=redis.url, queue=url)


class TestStart:
    def test_start_with_frozen_redis_is_accepted_and_runs_once(
        self, redis: RedisServer, tmp_path: Path
    ) -> None:
        settings = on_redis(tmp_path, redis)
        async_test(start_without_store)(settings, tmp_path, redis.freeze, redis.thaw)

    def test_start_with_killed_redis_is_accepted_and_runs_once(
        self, redis: RedisServer, tmp_path: Path
    ) -> None:
        settings = on_redis(tmp_path, redis)
        async_test(start_without_store)(settings, tmp_path, redis.kill, redis.restart)

    def test_start_with_full_redis_is_accepted_and_runs_once(
        self, redis: RedisServer, tmp_path: Path
    ) -> None:
        settings = on_redis(tmp_path, redis)
        full, empty = (lambda size=size: limit_memory(redis, size) for size in ("1", "0"))
        async_test(start_without_store)(settings, tmp_path, full, empty)

    def test_start_with_frozen_broker_is_accepted_and_runs_once(
        self, redis: RedisServer, rabbitmq: tuple[Broker, str], tmp_path: Path
    ) -> None:
        broker, url = rabbitmq
        settings = on_rabbitmq(tmp_path, redis, url)
        async_test(start_without_store)(settings, tmp_path, broker.freeze, broker.thaw)

    def test_start_with_killed_broker_is_accepted_and_runs_once(
        self, redis: RedisServer, rabbitmq: tuple[Broker, str], tmp_path: Path
    ) -> None:
        broker, url = rabbitmq
        settings = on_rabbitmq(tmp_path, redis, url)

        def kill() -> None:
            broker.settle()
            broker.kill()

        async_test(start_without_store)(settings, tmp_path, kill, broker.start)


def limit_memory(redis: RedisServer, size: str) -> None:
    async def go() -> None:
        client = Client(redis.url)
        await client.call("CONFIG", "SET", "maxmemory", size)
        await client.close()

    asyncio.run(go())
