"""Cleanup of idle consumers in the consumer groups of the streams."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from rune.adapters.redis.client import Client
from rune.adapters.redis.encoding import KeySpace
from rune.adapters.redis.streams import GROUP, ConsumerCleaner, Streams
from rune.core.execution.token import Token
from tests.support.async_test import async_test
from tests.support.redis_stores import fresh_keys, redis_queue
from tests.support.services.redis_server import redis_server

ONE_HOUR_S = 3600.0
TIMEOUT_S = 60.0


async def _consumer_names(client: Client, streams: Sequence[str]) -> set[str]:
    """Return the consumers in the groups of the streams."""
    found: set[str] = set()
    for stream in streams:
        for row in await client.call("XINFO", "CONSUMERS", stream, GROUP):
            fields = dict(zip(row[::2], row[1::2], strict=True))
            found.add(fields[b"name"].decode())
    return found


class ConsumerSetup:
    """Streams with their own prefix, and consumers that stop reading."""

    def __init__(self, keys: KeySpace) -> None:
        self.keys = keys
        self.client = Client(redis_server().url, run_number_key=keys.run_number)
        self.cleaner = ConsumerCleaner(self.client, keys)

    async def consumer(self, name: str, queues: Sequence[str] = ("default",)) -> Streams:
        """Register a consumer in every group; servers differ in when they register it themselves."""
        streams = Streams(self.client, self.keys, name, queues)
        await streams.make_groups()
        for stream in streams.all:
            await self.client.call("XGROUP", "CREATECONSUMER", stream, GROUP, name)
        return streams


class TestConsumers:
    @async_test
    async def test_idle_consumer_is_removed(self, tmp_path: Path) -> None:
        setup = ConsumerSetup(fresh_keys())
        dead = await setup.consumer("dead")
        assert await _consumer_names(setup.client, dead.all) == {"dead"}
        assert await setup.cleaner.forget(ONE_HOUR_S) == 0
        assert await setup.cleaner.forget(0.0) == len(dead.all)
        assert await _consumer_names(setup.client, dead.all) == set()
        await setup.client.close()

    @async_test
    async def test_consumers_of_every_queue_are_removed(self, tmp_path: Path) -> None:
        setup = ConsumerSetup(fresh_keys())
        other = ConsumerSetup(fresh_keys())
        named = await setup.consumer("dead", ("slow", "default"))
        unrelated = await other.consumer("unrelated")
        assert await setup.cleaner.forget(0.0) == len(named.all)
        assert await _consumer_names(setup.client, unrelated.all) == {"unrelated"}
        await setup.client.close()
        await other.client.close()

    @async_test
    async def test_consumer_with_pending_entry_is_kept_until_reclaimed(self, tmp_path: Path) -> None:
        setup = ConsumerSetup(fresh_keys())
        dead = await setup.consumer("dead")
        await dead.add("x", [Token(1, ())], 5, ["default"])
        (entry,) = await dead.read("normal", 1)
        assert await setup.cleaner.forget(0.0) == len(dead.all) - 1
        assert await _consumer_names(setup.client, [entry.stream]) == {"dead"}
        successor = await setup.consumer("successor")
        (again,) = await successor.reclaim(0, 1)
        assert (again.id, again.execution) == (entry.id, "x")
        await successor.delete(again)
        await setup.cleaner.forget(0.0)
        assert await _consumer_names(setup.client, successor.all) == set()
        await setup.client.close()

    @async_test
    async def test_removed_active_consumer_loses_no_token(self, tmp_path: Path) -> None:
        setup = ConsumerSetup(fresh_keys())
        tokens = [Token(number, ()) for number in range(200)]
        async with redis_queue(setup.keys, "active") as queue, asyncio.timeout(TIMEOUT_S):
            reading = asyncio.create_task(queue.receive())
            received: list[int] = []
            for token in tokens:
                await queue.send("x", [token])
                cleaning = asyncio.create_task(setup.cleaner.forget(0.0))
                delivery = await reading
                reading = asyncio.create_task(queue.receive())
                await cleaning
                received.append(delivery.token.node)
                await queue.ack(delivery)
            reading.cancel()
        assert sorted(received) == list(range(200))
        await setup.client.close()

    @async_test
    async def test_streams_without_group_are_skipped(self, tmp_path: Path) -> None:
        setup = ConsumerSetup(fresh_keys())
        await setup.client.call("XADD", setup.keys.stream(0, "default", "low"), "*", "a", "1")
        assert await setup.cleaner.forget(0.0) == 0
        await setup.client.close()
