"""Whoever looks sees the same in PostgreSQL: the journal of an embedded engine, written there fact by fact, answers and
folds alike."""

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
from rune.ports.queries import Event, NodeRun, Summary
from rune.runtime.queries.reader import ExecutionReader
from rune.settings import Settings
from rune.testing.clock import VirtualClock
from rune.testing.harness import harness
from tests.contract.suites.scenario import scenario
from tests.contract.suites.store import FAILING, FAN, Stage, StoreContract
from tests.support.services.databases import dsn_of, reader_of, ready


@pytest.fixture(autouse=True, scope="module")
def _running() -> None:
    ready()


class Followed:
    """A store over PostgreSQL that first brings over what the embedded journal has that it has not."""

    def __init__(self, source: ExecutionReader, folder: Path, found: PostgresStores) -> None:
        self._source = source
        self._folder = folder
        self._found = found
        self._store = reader_of(found)
        self._seen: dict[str, int] = {}

    async def _follow(self) -> None:
        await self._blobs()
        for summary in reversed(await self._source.executions(limit=100)):
            accepted = await self._source.accepted(summary.id)
            if summary.id not in self._seen:
                definition = await self._source.definition(accepted.hash)
                assert definition is not None
                await self._found.journal.save_definition(accepted.hash, definition)
                await self._found.journal.accept(accepted)
            for row in await self._source.facts(summary.id, self._seen.get(summary.id, 0)):
                with suppress(ExecutionEndedError):
                    await self._found.journal.record(summary.id, [row.fact])
                self._seen[summary.id] = row.number

    async def _blobs(self) -> None:
        with sqlite3.connect(self._folder / "rune.db") as db:
            rows = db.execute("SELECT key, data FROM blob").fetchall()
        db.close()
        for key, data in rows:
            await self._found.blob.put(key, data)

    async def executions(self, *given: Any, **page: Any) -> list[Summary]:
        await self._follow()
        return await self._store.executions(*given, **page)

    async def execution(self, execution: str) -> Summary | None:
        await self._follow()
        return await self._store.execution(execution)

    async def node_runs(self, execution: str, **given: Any) -> list[NodeRun]:
        await self._follow()
        return await self._store.node_runs(execution, **given)

    async def events(self, execution: str, **given: Any) -> list[Event]:
        await self._follow()
        return await self._store.events(execution, **given)


class TestStore(StoreContract):
    @asynccontextmanager
    async def make_stage(self, folder: Path) -> AsyncIterator[Stage]:
        async with (
            harness(folder, clock=VirtualClock()) as running,
            postgres(dsn_of(folder)) as found,
            open_reader(Settings(home=str(folder))) as source,
        ):
            yield Stage(running, Followed(source, folder, found))

    @scenario
    async def test_the_same_journal_folds_to_the_same_state(self, folder: Path) -> None:
        async with harness(folder, clock=VirtualClock()) as running, postgres(dsn_of(folder)) as found:
            for document, given in ((FAN, {"xs": list(range(20))}), (FAN, {"xs": []}), (FAILING, None)):
                await running.run(document, given)
            async with open_reader(Settings(home=str(folder))) as source:
                store = Followed(source, folder, found)
                for summary in await store.executions():
                    here, there = source, reader_of(found)
                    assert await there.execution(summary.id) == await here.execution(summary.id)
                    assert await there.events(summary.id) == await here.events(summary.id)
                    assert await there.node_runs(summary.id) == await here.node_runs(summary.id)
                    assert (await there.state(summary.id, 9))[1] == (await here.state(summary.id, 9))[1]
