"""Redis queues and states for tests."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path

from rune.adapters.redis.client import Client
from rune.adapters.redis.cluster import open_client
from rune.adapters.redis.encoding import KeySpace
from rune.adapters.redis.queue import RedisQueue
from rune.adapters.redis.state import RedisState
from rune.adapters.redis.stores import RedisStores
from rune.adapters.redis.streams import Streams
from rune.adapters.sqlite.journal import SqliteJournal
from rune.core.execution.outcome import Output
from rune.core.execution.step import step
from rune.core.execution.stored_value import Inline
from rune.core.execution.token import Token
from rune.core.plan.model import Plan
from rune.ports.clock import SystemClock
from rune.ports.journal import ExecutionRecord, NewerFormatError
from rune.ports.state import Applied
from tests.support.services.redis_server import redis_server
from tests.support.sqlite_stores import sqlite_stores

_prefixes = count()


def fresh_keys() -> KeySpace:
    """Return keys with an unused prefix, as on an empty server."""
    return KeySpace(f"test{os.getpid()}-{next(_prefixes)}")


@asynccontextmanager
async def redis_queue(
    keys: KeySpace, consumer: str, *, idle: float = 30.0, url: str = ""
) -> AsyncIterator[RedisQueue]:
    """Open the queue of one consumer, on the shared server or that of a URL."""
    url = url or redis_server().url
    client = open_client(url, run_number_key=keys.run_number)
    blocking = Client(url, deadline=None)
    queue = RedisQueue(client, blocking, Streams(client, keys, consumer), idle=idle)
    try:
        yield queue
    finally:
        await queue.close()
        await client.close()
        await blocking.close()


class RedisCluster:
    """One journal, and the Redis states of several processes over it."""

    def __init__(self, journal: SqliteJournal, url: str, plan: Plan) -> None:
        self.journal = journal
        self.plan = plan
        self.prefix = fresh_keys().prefix
        self._url = url
        self._stores: list[RedisStores] = []
        self.unreadable: set[str] = set()

    def process(self, *, streams: bool = False) -> RedisState:
        """Return the state of one more process."""
        stores = RedisStores(self._url, prefix=self.prefix)
        self._stores.append(stores)
        confirmations = stores.confirmations()
        queue = None
        if streams:
            queue = stores.queue(f"worker-{len(self._stores)}", on_sent=confirmations.add)
        return stores.state(
            self.journal,
            self._plan,
            queue=queue,
            running_executions=self._running_executions,
            confirmations=confirmations,
        )

    async def _plan(self, hash: str) -> Plan:
        if hash in self.unreadable:
            raise NewerFormatError(hash)
        return self.plan

    async def _running_executions(self, after: str, limit: int) -> Sequence[tuple[str, int | None]]:
        rows = self.journal.waking((-1, 0), 1 << 60, 1 << 30)
        found = sorted((execution, 0) for _, _, execution in rows)
        return [each for each in found if each[0] > after][:limit]

    async def accept(self, execution: str = "x") -> ExecutionRecord:
        now = SystemClock().now()
        hash = execution if execution == "newer" else self.plan.hash
        return await self.journal.accept(
            ExecutionRecord(id=execution, workflow="w", hash=hash, at=now, input=Inline(b"{}"))
        )

    async def complete(
        self, state: RedisState, token: Token, outcome: object = None, execution: str = "x"
    ) -> Applied:
        ended = step(self.plan, token, outcome or Output(Inline(b"1")), SystemClock().now())  # type: ignore[arg-type]
        assert ended.fact is not None
        await self.journal.record(execution, [ended.fact])
        return await state.apply(execution, [ended])

    async def stored_keys(self, execution: str) -> list[str]:
        """Return the keys with the state of an execution."""
        keys = KeySpace(self.prefix).of(execution)
        state = (keys[0], keys[1], keys[2], keys[5], keys[6])
        client = self._stores[0].client
        return [key for key in state if await client.call("EXISTS", key)]

    async def due_time(self, execution: str) -> int | None:
        """Return the time (epoch ms) of the next timer of an execution."""
        due = await self._stores[0].client.call("ZSCORE", KeySpace(self.prefix).of(execution).due, execution)
        return None if due is None else int(due)

    async def close(self) -> None:
        for stores in self._stores:
            await stores.client.close()


@asynccontextmanager
async def redis_cluster(folder: Path, url: str, plan: Plan) -> AsyncIterator[RedisCluster]:
    """Open a cluster over the SQLite journal of the folder."""
    async with sqlite_stores(folder, SystemClock()) as stores:
        cluster = RedisCluster(stores.journal, url, plan)
        try:
            yield cluster
        finally:
            await cluster.close()
