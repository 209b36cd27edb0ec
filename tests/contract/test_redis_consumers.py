"""Names of readers in the groups of the streams: those of the dead go, and with them nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from rune.adapters.redis.client import Client
from rune.adapters.redis.keys import KeySpace
from rune.adapters.redis.streams import GROUP, ConsumerCleaner, Streams
from rune.core.execution.token import Token
from tests.contract.suites.scenario import scenario
from tests.contract.test_redis import fresh_keys, opened_queue
from tests.support.services.redis_server import redis_server

LONG = 3600.0
PATIENCE = 60.0


async def _names(client: Client, streams: Sequence[str]) -> set[str]:
    """Who is in the group of any of the streams."""
    found: set[str] = set()
    for stream in streams:
        for row in await client.call("XINFO", "CONSUMERS", stream, GROUP):
            told = dict(zip(row[::2], row[1::2], strict=True))
            found.add(told[b"name"].decode())
    return found


class World:
    """Streams of one test's own, and readers of them that can be killed: they only stop to ask."""

    def __init__(self, keys: KeySpace) -> None:
        self.keys = keys
        self.client = Client(redis_server().url)
        self.consumers = ConsumerCleaner(self.client, keys)

    async def reader(self, name: str, queues: Sequence[str] = ("default",)) -> Streams:
        """One that is in every group: some servers enter a reader at its first look, others when it gets something."""
        made = Streams(self.client, self.keys, name, queues)
        await made.make_groups()
        for stream in made.all:
            await self.client.call("XGROUP", "CREATECONSUMER", stream, GROUP, name)
        return made


class TestConsumers:
    @scenario
    async def test_a_reader_that_was_killed_is_forgotten(self, folder: Path) -> None:
        world = World(fresh_keys())
        dead = await world.reader("dead")
        assert await _names(world.client, dead.all) == {"dead"}
        assert await world.consumers.forget(LONG) == 0
        assert await world.consumers.forget(0.0) == len(dead.all)
        assert await _names(world.client, dead.all) == set()
        await world.client.close()

    @scenario
    async def test_readers_of_every_queue_are_looked_at(self, folder: Path) -> None:
        world = World(fresh_keys())
        other = World(fresh_keys())
        named = await world.reader("dead", ("slow", "default"))
        strange = await other.reader("stranger")
        assert await world.consumers.forget(0.0) == len(named.all)
        assert await _names(world.client, strange.all) == {"stranger"}
        await world.client.close()
        await other.client.close()

    @scenario
    async def test_who_holds_something_stays_and_it_is_handed_out_again(self, folder: Path) -> None:
        world = World(fresh_keys())
        dead = await world.reader("dead")
        await dead.add("x", [Token(1, ())], 5, ["default"])
        (entry,) = await dead.read("normal", 1)
        assert await world.consumers.forget(0.0) == len(dead.all) - 1
        assert await _names(world.client, [entry.stream]) == {"dead"}
        heir = await world.reader("heir")
        (again,) = await heir.reclaim(0, 1)
        assert (again.id, again.execution) == (entry.id, "x")
        await heir.delete(again)
        await world.consumers.forget(0.0)
        assert await _names(world.client, heir.all) == set()
        await world.client.close()

    @scenario
    async def test_one_that_lives_loses_nothing_however_often_it_is_forgotten(self, folder: Path) -> None:
        world = World(fresh_keys())
        tokens = [Token(number, ()) for number in range(200)]
        async with opened_queue(world.keys, "living") as queue, asyncio.timeout(PATIENCE):
            reading = asyncio.create_task(queue.receive())
            taken: list[int] = []
            for token in tokens:
                await queue.send("x", [token])
                gone = asyncio.create_task(world.consumers.forget(0.0))
                delivery = await reading
                reading = asyncio.create_task(queue.receive())
                await gone
                taken.append(delivery.token.node)
                await queue.ack(delivery)
            reading.cancel()
        assert sorted(taken) == list(range(200))
        await world.client.close()

    @scenario
    async def test_streams_without_a_group_are_nothing_to_do(self, folder: Path) -> None:
        world = World(fresh_keys())
        await world.client.call("XADD", world.keys.stream(0, "default", "low"), "*", "a", "1")
        assert await world.consumers.forget(0.0) == 0
        await world.client.close()
