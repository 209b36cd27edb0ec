"""Contract tests of the Redis state and queue, on a real server over a SQLite journal."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from rune.adapters.redis.client import Client
from rune.adapters.redis.queue import RedisQueue
from rune.adapters.redis.state import RedisState
from rune.adapters.sqlite.journal import SqliteJournal
from rune.core.plan.model import Plan
from rune.ports.journal import Journal
from rune.testing.clock import VirtualClock
from tests.contract.suites.queue import QueueContract
from tests.contract.suites.state import StateContract
from tests.support.redis_stores import fresh_keys, redis_queue
from tests.support.services.redis_server import redis_server
from tests.support.sqlite_stores import copy_sqlite_files, sqlite_stores


class TestState(StateContract):
    @asynccontextmanager
    async def make_stores(
        self, folder: Path, clock: VirtualClock, plans: Mapping[str, Plan]
    ) -> AsyncIterator[tuple[SqliteJournal, RedisState]]:
        async with sqlite_stores(folder, clock) as stores:
            self._clients: list[Client] = []
            yield stores.journal, self.make_state(stores.journal, clock, plans)
            for client in self._clients:
                await client.close()

    def make_state(self, journal: Journal, clock: VirtualClock, plans: Mapping[str, Plan]) -> RedisState:
        assert isinstance(journal, SqliteJournal)

        async def plan(hash: str) -> Plan:
            return plans[hash]

        async def running_executions(after: str, limit: int) -> Sequence[tuple[str, int | None]]:
            rows = journal.waking((-1, 0), 1 << 60, 1 << 30)
            found = sorted((execution, clock.now()) for _, _, execution in rows)
            return [each for each in found if each[0] > after][:limit]

        keys = fresh_keys()
        client = Client(redis_server().url, incarnation_key=keys.incarnation)
        self._clients.append(client)
        return RedisState(client, keys, journal, plan, clock=clock, running_executions=running_executions)

    def make_crash_copy(self, folder: Path) -> Path:
        return copy_sqlite_files(folder)


class TestQueue(QueueContract):
    @asynccontextmanager
    async def make_queue(self, folder: Path) -> AsyncIterator[RedisQueue]:
        async with redis_queue(fresh_keys(), "one") as queue:
            yield queue
