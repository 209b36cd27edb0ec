"""Contract tests of queries on PostgreSQL, over a copy of the journal of an embedded engine."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from rune.adapters.postgres.stores import PostgresStores, postgres
from rune.bootstrap import open_reader
from rune.ports.journal import ExecutionEndedError
from rune.ports.queries import Event, ExecutionCount, ExecutionFilter, ExecutionsFound, NodeRun, Summary
from rune.runtime.queries.reader import ExecutionReader
from rune.settings import Settings
from rune.testing.harness import VirtualClock, harness
from tests.contract.suites.queries import FAILING, FAN, QueryContract, QuerySetup
from tests.support.async_test import async_test
from tests.support.services.databases import dsn_of, reader_of, ready


@pytest.fixture(autouse=True, scope="module")
def _running() -> None:
    ready()


class CopyingReader:
    """Reads from PostgreSQL after copying new facts of the embedded journal there."""

    def __init__(self, source: ExecutionReader, folder: Path, target: PostgresStores) -> None:
        self._source = source
        self._folder = folder
        self._target = target
        self._store = reader_of(target)
        self._seen: dict[str, int] = {}

    async def _copy_facts(self) -> None:
        await self._copy_blobs()
        for summary in reversed(await self._source.executions(limit=100)):
            accepted = await self._source.accepted(summary.id)
            if summary.id not in self._seen:
                definition = await self._source.definition(accepted.hash)
                assert definition is not None
                await self._target.journal.save_definition(accepted.hash, definition)
                await self._target.journal.accept(accepted)
            for row in await self._source.facts(summary.id, self._seen.get(summary.id, 0)):
                with suppress(ExecutionEndedError):
                    await self._target.journal.record(summary.id, [row.fact])
                self._seen[summary.id] = row.number

    async def _copy_blobs(self) -> None:
        with sqlite3.connect(self._folder / "rune.db") as db:
            rows = db.execute("SELECT key, data FROM blob").fetchall()
        db.close()
        for key, data in rows:
            await self._target.blob.put(key, data)

    async def executions(self, *given: Any, **page: Any) -> list[Summary]:
        await self._copy_facts()
        return await self._store.executions(*given, **page)

    async def search(
        self, wanted: ExecutionFilter, *, after: str | None = None, limit: int = 50
    ) -> ExecutionsFound:
        await self._copy_facts()
        return await self._store.search(wanted, after=after, limit=limit)

    async def count(self, wanted: ExecutionFilter) -> ExecutionCount:
        await self._copy_facts()
        return await self._store.count(wanted)

    async def execution(self, execution: str) -> Summary | None:
        await self._copy_facts()
        return await self._store.execution(execution)

    async def node_runs(self, execution: str, **given: Any) -> list[NodeRun]:
        await self._copy_facts()
        return await self._store.node_runs(execution, **given)

    async def events(self, execution: str, **given: Any) -> list[Event]:
        await self._copy_facts()
        return await self._store.events(execution, **given)


class TestQueries(QueryContract):
    @asynccontextmanager
    async def make_setup(self, folder: Path) -> AsyncIterator[QuerySetup]:
        async with (
            harness(folder, clock=VirtualClock()) as running,
            postgres(dsn_of(folder)) as found,
            open_reader(Settings(home=str(folder))) as source,
        ):
            yield QuerySetup(running, CopyingReader(source, folder, found))

    @async_test
    async def test_copied_journal_rebuilds_same_state(self, tmp_path: Path) -> None:
        async with harness(tmp_path, clock=VirtualClock()) as running, postgres(dsn_of(tmp_path)) as found:
            for document, given in ((FAN, {"xs": list(range(20))}), (FAN, {"xs": []}), (FAILING, None)):
                await running.run(document, given)
            async with open_reader(Settings(home=str(tmp_path))) as source:
                store = CopyingReader(source, tmp_path, found)
                for summary in await store.executions():
                    here, there = source, reader_of(found)
                    assert await there.execution(summary.id) == await here.execution(summary.id)
                    assert await there.events(summary.id) == await here.events(summary.id)
                    assert await there.node_runs(summary.id) == await here.node_runs(summary.id)
                    assert (await there.state(summary.id, 9))[1] == (await here.state(summary.id, 9))[1]
