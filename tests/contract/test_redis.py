"""State and queue in Redis keep the contracts, on a real server, before the embedded journal."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path

from rune.adapters.redis.client import Client
from rune.adapters.redis.keys import KeySpace
from rune.adapters.redis.queue import RedisQueue
from rune.adapters.redis.state import RedisState
from rune.adapters.redis.streams import Streams
from rune.adapters.sqlite.journal import SqliteJournal
from rune.core.plan.model import Plan
from rune.ports.journal import Journal
from rune.testing.clock import VirtualClock
from tests.contract.suites.queue import QueueContract
from tests.contract.suites.state import StateContract
from tests.contract.test_embedded import left_on_disk, opened
from tests.support.services.redis_server import redis_server

_worlds = count()


def fresh_keys() -> KeySpace:
    """Names that nobody has used: a server that knows nothing, as far as they reach."""
    return KeySpace(f"test{next(_worlds)}")


@asynccontextmanager
async def opened_queue(keys: KeySpace, consumer: str, *, idle: float = 30.0) -> AsyncIterator[RedisQueue]:
    client, blocking = Client(redis_server().url), Client(redis_server().url, deadline=None)
    queue = RedisQueue(client, blocking, Streams(client, keys, consumer), idle=idle)
    try:
        yield queue
    finally:
        await queue.close()
        await client.close()
        await blocking.close()


class TestState(StateContract):
    @asynccontextmanager
    async def make_stores(
        self, folder: Path, clock: VirtualClock, plans: Mapping[str, Plan]
    ) -> AsyncIterator[tuple[SqliteJournal, RedisState]]:
        async with opened(folder, clock) as embedded:
            self._clients: list[Client] = []
            yield embedded.journal, self.make_state(embedded.journal, clock, plans)
            for client in self._clients:
                await client.close()

    def make_state(self, journal: Journal, clock: VirtualClock, plans: Mapping[str, Plan]) -> RedisState:
        assert isinstance(journal, SqliteJournal)

        async def plan(hash: str) -> Plan:
            return plans[hash]

        async def roll(after: str, limit: int) -> Sequence[tuple[str, int | None]]:
            rows = journal.waking((-1, 0), 1 << 60, 1 << 30)
            found = sorted((execution, clock.now()) for _, _, execution in rows)
            return [each for each in found if each[0] > after][:limit]

        keys = fresh_keys()
        client = Client(redis_server().url, incarnation_key=keys.incarnation)
        self._clients.append(client)
        return RedisState(client, keys, journal, plan, clock=clock, running_executions=roll)

    def crashed(self, folder: Path) -> Path:
        return left_on_disk(folder)


class TestQueue(QueueContract):
    @asynccontextmanager
    async def make_queue(self, folder: Path) -> AsyncIterator[RedisQueue]:
        async with opened_queue(fresh_keys(), "one") as queue:
            yield queue
