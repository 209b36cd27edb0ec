"""The process registry in Redis: which processes are listed."""

from __future__ import annotations

from msgspec.structs import replace

from rune.adapters.redis.client import Client
from rune.adapters.redis.processes import RedisProcessRegistry
from rune.ports.processes import ProcessInfo
from tests.support.async_test import async_test
from tests.support.redis_stores import fresh_keys
from tests.support.services.redis_server import redis_server


def process(name: str, expiry_s: float) -> ProcessInfo:
    return ProcessInfo(
        name=name, host="h", pid=1, roles=("worker",), version="1", started_at=0, expiry_s=expiry_s
    )


@async_test
async def test_process_is_unlisted_after_its_own_timeout() -> None:
    client = Client(redis_server().url)
    try:
        registry = RedisProcessRegistry(client, fresh_keys())
        await registry.heartbeat(process("stays", 60.0))
        await registry.heartbeat(process("expired", -1.0))

        assert [each.name for each in await registry.list()] == ["stays"]
    finally:
        await client.close()


@async_test
async def test_drain_request_lasts_as_long_as_its_process() -> None:
    client = Client(redis_server().url)
    try:
        registry = RedisProcessRegistry(client, fresh_keys())
        await registry.request_drain("one", True)

        assert await registry.heartbeat(process("one", 60.0))
        assert not await registry.heartbeat(process("other", 60.0))
        await registry.request_drain("one", False)
        assert not await registry.heartbeat(process("one", 60.0))
        await registry.request_drain("one", True)
        await registry.leave("one")
        assert not await registry.heartbeat(process("one", 60.0))
    finally:
        await client.close()


@async_test
async def test_worker_stays_drained_when_registry_is_emptied() -> None:
    client = Client(redis_server().url)
    try:
        registry = RedisProcessRegistry(client, fresh_keys())
        draining = replace(process("one", 60.0), draining=True)
        await registry.request_drain("one", True)
        assert await registry.heartbeat(draining)
        await client.call("FLUSHALL")
        assert await registry.heartbeat(draining)
        assert await registry.heartbeat(draining)
        assert [each.draining for each in await registry.list()] == [True]

        await registry.request_drain("one", False)
        assert not await registry.heartbeat(draining)
    finally:
        await client.close()
