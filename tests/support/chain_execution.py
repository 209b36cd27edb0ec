"""One execution of a chain over Redis and the SQLite journal, with a virtual clock."""

from __future__ import annotations

import pathlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from rune.adapters.redis.client import Client
from rune.adapters.redis.encoding import KeySpace
from rune.adapters.redis.state import RedisState
from rune.adapters.sqlite.journal import SqliteJournal
from rune.core.execution.outcome import Suspend
from rune.core.execution.step import step
from rune.core.execution.stored_value import Inline
from rune.core.execution.token import Token
from rune.core.plan.model import Plan
from rune.ports.journal import ExecutionRecord
from rune.testing.harness import VirtualClock
from tests.contract.suites.state_driver import chain
from tests.support.redis_stores import fresh_keys
from tests.support.services.redis_server import redis_server
from tests.support.sqlite_stores import sqlite_stores


class ChainExecution:
    """One execution of a chain, its journal, and its state in Redis."""

    def __init__(self, journal: SqliteJournal, client: Client, keys: KeySpace, clock: VirtualClock) -> None:
        self.keys = keys
        self.client = client
        self.journal = journal
        self._clock = clock
        self.state = RedisState(client, keys, journal, self._plan, clock=clock)

    async def _plan(self, hash: str) -> Plan:
        return chain()

    async def begin(self) -> Token:
        plan, now = chain(), self._clock.now()
        accepted = ExecutionRecord(id="x", workflow="w", hash=plan.hash, at=now, input=Inline(b"{}"))
        (first,) = (await self.state.admit(await self.journal.accept(accepted), plan)).emitted
        return first

    async def suspend(self, token: Token, ms: int) -> None:
        now = self._clock.now()
        decision = step(chain(), token, Suspend(until=now + ms), now)
        assert decision.fact is not None
        await self.journal.record("x", [decision.fact])
        await self.state.apply("x", [decision])

    async def dump(self) -> list[bytes | None]:
        """Return all keys of the execution."""
        return [await self.client.call("DUMP", key) for key in self.keys.of("x")]


@asynccontextmanager
async def open_execution(folder: pathlib.Path, clock: VirtualClock) -> AsyncIterator[ChainExecution]:
    keys = fresh_keys()
    async with sqlite_stores(folder, clock) as embedded:
        client = Client(redis_server().url, run_number_key=keys.run_number)
        try:
            yield ChainExecution(embedded.journal, client, keys, clock)
        finally:
            await client.close()
