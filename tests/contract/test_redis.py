"""Contract tests of the Redis state and queue, on a real server over a SQLite journal."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from rune.adapters.redis.client import Client
from rune.adapters.redis.cluster import open_client
from rune.adapters.redis.dead_letters import MAX_LETTERS, RedisDeadLetters
from rune.adapters.redis.encoding import encode_token
from rune.adapters.redis.queue import RedisQueue
from rune.adapters.redis.state import RedisState
from rune.adapters.sqlite.journal import SqliteJournal
from rune.core.definition.model import DEFAULT_QUEUE
from rune.core.execution.token import Token
from rune.core.plan.model import Plan
from rune.ports.journal import Journal
from rune.ports.queue import LANES
from rune.ports.state import State
from rune.testing.harness import VirtualClock
from tests.contract.suites.lost_leases import LostLeaseContract
from tests.contract.suites.malformed_messages import MalformedMessageContract
from tests.contract.suites.queue import QueueContract
from tests.contract.suites.state import StateContract
from tests.contract.suites.state_driver import joined
from tests.support.async_test import async_test
from tests.support.redis_stores import fresh_keys, redis_queue
from tests.support.services.redis_server import redis_server
from tests.support.sqlite_stores import copy_sqlite_files, sqlite_stores


class TestState(StateContract, LostLeaseContract):
    def url(self) -> str:
        return redis_server().url

    @asynccontextmanager
    async def make_stores(
        self, folder: Path, clock: VirtualClock, plans: Mapping[str, Plan]
    ) -> AsyncIterator[tuple[SqliteJournal, State]]:
        async with sqlite_stores(folder, clock) as stores:
            self._clients: list[Client] = []
            yield stores.journal, self.make_state(stores.journal, clock, plans)
            for client in self._clients:
                await client.close()

    def make_state(self, journal: Journal, clock: VirtualClock, plans: Mapping[str, Plan]) -> State:
        assert isinstance(journal, SqliteJournal)

        async def plan(hash: str) -> Plan:
            return plans[hash]

        async def running_executions(after: str, limit: int) -> Sequence[tuple[str, int | None]]:
            rows = journal.waking((-1, 0), 1 << 60, 1 << 30)
            found = sorted((execution, clock.now()) for _, _, execution in rows)
            return [each for each in found if each[0] > after][:limit]

        keys = fresh_keys()
        client = open_client(self.url(), run_number_key=keys.run_number)
        self._clients.append(client)
        return RedisState(client, keys, journal, plan, clock=clock, running_executions=running_executions)

    @async_test
    async def test_one_process_may_report_progress_in_a_period(self, tmp_path: Path) -> None:
        async with self.driver(tmp_path, joined()) as driver:
            await driver.accept()
            state = driver.state
            assert isinstance(state, RedisState)
            assert [await state.may_report("x", 600_000) for _ in range(3)] == [True, False, False]
            assert await state.may_report("y", 1)
            async with asyncio.timeout(60):
                while not await state.may_report("y", 1):
                    pass

    def make_crash_copy(self, folder: Path) -> Path:
        return copy_sqlite_files(folder)


class TestMalformedMessages(MalformedMessageContract):
    max_letters = MAX_LETTERS

    def url(self) -> str:
        return redis_server().url

    @asynccontextmanager
    async def make_stores(self, folder: Path) -> AsyncIterator[tuple[RedisQueue, RedisDeadLetters]]:
        self._keys = fresh_keys()
        self._client = open_client(self.url(), run_number_key=self._keys.run_number)
        async with redis_queue(self._keys, "one", url=self.url()) as queue:
            yield queue, RedisDeadLetters(self._client, self._keys)
        await self._client.close()

    def valid_bodies(self) -> list[bytes]:
        tokens = (Token(3), Token(1, (0, 7)), Token(2, attempt=3, resumed=True, at=17))
        return [encode_token(each) for each in tokens]

    def named_body(self) -> bytes:
        return b"\xc1"

    async def put(self, queue: RedisQueue, bodies: Sequence[bytes]) -> None:
        """Add entries to the stream of one partition; some have no token, or no valid id."""
        part = self._keys.partition("x")
        stream = self._keys.stream(part, DEFAULT_QUEUE, "normal")
        for number, body in enumerate(bodies):
            name = (b"x", b"x", b"x", b"\xff", body[:20])[number % 5]
            fields = (b"x", name, b"t", body) if number % 7 else (b"t", body)
            await self._client.call("XADD", stream, "*", *fields)

    async def count_unsettled(self, queue: RedisQueue) -> int:
        streams = [
            self._keys.stream(part, DEFAULT_QUEUE, lane)
            for part in range(self._keys.partitions)
            for lane in LANES
        ]
        return sum([int(await self._client.call("XLEN", each)) for each in streams])


class TestQueue(QueueContract):
    def url(self) -> str:
        return redis_server().url

    @asynccontextmanager
    async def make_queue(self, folder: Path) -> AsyncIterator[RedisQueue]:
        async with redis_queue(fresh_keys(), "one", url=self.url()) as queue:
            yield queue
