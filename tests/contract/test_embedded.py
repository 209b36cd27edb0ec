"""The embedded adapters keep the contracts."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from rune.adapters.sqlite.database import Database
from rune.adapters.sqlite.journal import SqliteJournal
from rune.adapters.sqlite.queue import SqliteQueue
from rune.adapters.sqlite.readonly import ReadOnlyDatabase
from rune.adapters.sqlite.state import SqliteState
from rune.adapters.sqlite.stores import SqliteBlobs, SqliteStores
from rune.adapters.sqlite.workflows import SqliteWorkflows
from rune.bootstrap import open_reader
from rune.core.plan.model import Plan
from rune.nodes.custom import kind_of, node
from rune.nodes.registry import standard_registry
from rune.ports.clock import Clock
from rune.ports.journal import Journal, NewerFormatError
from rune.runtime.clock import SystemClock
from rune.runtime.queries.reader import ExecutionReader
from rune.settings import Settings
from rune.testing.clock import VirtualClock
from rune.testing.harness import compiled, harness
from tests.contract.suites.aliases import AliasContract
from tests.contract.suites.blob import BlobContract
from tests.contract.suites.clock import ClockContract
from tests.contract.suites.journal import JournalContract
from tests.contract.suites.library import LibraryContract
from tests.contract.suites.queue import QueueContract
from tests.contract.suites.scenario import scenario
from tests.contract.suites.state import StateContract
from tests.contract.suites.store import Stage, StoreContract


@asynccontextmanager
async def opened(folder: Path, clock: Clock | None = None) -> AsyncIterator[SqliteStores]:
    embedded = SqliteStores(folder / "rune.db", clock or VirtualClock())
    embedded.database.start()
    try:
        yield embedded
    finally:
        await embedded.journal.close()


def left_on_disk(folder: Path) -> Path:
    """What another process would find if this one died now."""
    copy = folder / "left"
    copy.mkdir()
    for name in ("rune.db", "rune.db-wal"):
        if (folder / name).exists():
            shutil.copyfile(folder / name, copy / name)
    return copy


class TestJournal(JournalContract):
    @asynccontextmanager
    async def make_journal(self, folder: Path) -> AsyncIterator[SqliteJournal]:
        async with opened(folder) as embedded:
            yield embedded.journal

    @asynccontextmanager
    async def make_store(self, folder: Path) -> AsyncIterator[ExecutionReader]:
        async with open_reader(Settings(home=str(folder))) as store:
            yield store

    def crashed(self, folder: Path) -> Path:
        return left_on_disk(folder)

    @scenario
    async def test_a_file_of_a_newer_program_is_left_alone(self, folder: Path) -> None:
        async with opened(folder):
            pass
        with sqlite3.connect(folder / "rune.db") as other:
            other.execute("PRAGMA user_version = 99")
        other.close()
        with pytest.raises(NewerFormatError):
            Database(folder / "rune.db")
        with sqlite3.connect(folder / "rune.db") as other:
            assert other.execute("PRAGMA user_version").fetchone() == (99,)
        other.close()


class TestBlob(BlobContract):
    @asynccontextmanager
    async def make_stores(self, folder: Path) -> AsyncIterator[tuple[SqliteJournal, SqliteBlobs]]:
        async with opened(folder) as embedded:
            yield embedded.journal, embedded.blob

    def crashed(self, folder: Path) -> Path:
        return left_on_disk(folder)


class TestLibrary(LibraryContract, AliasContract):
    @asynccontextmanager
    async def make_library(self, folder: Path) -> AsyncIterator[tuple[SqliteJournal, SqliteWorkflows]]:
        async with opened(folder) as embedded:
            yield embedded.journal, SqliteWorkflows(embedded.database)

    @asynccontextmanager
    async def make_looker(self, folder: Path) -> AsyncIterator[SqliteWorkflows]:
        database = ReadOnlyDatabase(folder / "rune.db")
        try:
            yield SqliteWorkflows(database)
        finally:
            database.close()

    def crashed(self, folder: Path) -> Path:
        return left_on_disk(folder)


class TestState(StateContract):
    @asynccontextmanager
    async def make_stores(
        self, folder: Path, clock: VirtualClock, plans: Mapping[str, Plan]
    ) -> AsyncIterator[tuple[SqliteJournal, SqliteState]]:
        async with opened(folder, clock) as embedded:
            yield embedded.journal, self.make_state(embedded.journal, clock, plans)

    def make_state(self, journal: Journal, clock: VirtualClock, plans: Mapping[str, Plan]) -> SqliteState:
        async def plan(hash: str) -> Plan:
            return plans[hash]

        assert isinstance(journal, SqliteJournal)
        return SqliteState(journal, plan, clock)

    def crashed(self, folder: Path) -> Path:
        return left_on_disk(folder)


class TestQueue(QueueContract):
    @asynccontextmanager
    async def make_queue(self, folder: Path) -> AsyncIterator[SqliteQueue]:
        yield SqliteQueue()


class TestSystemClock(ClockContract):
    def make_clock(self) -> SystemClock:
        return SystemClock()


class TestVirtualClock(ClockContract):
    def make_clock(self) -> VirtualClock:
        return VirtualClock()

    def pass_time(self, clock: Clock, ms: int) -> None:
        assert isinstance(clock, VirtualClock)
        clock.advance(ms)

    @scenario
    async def test_time_moves_only_when_told(self, folder: Path) -> None:
        clock = self.make_clock()
        before = clock.now()
        assert clock.now() == before
        clock.advance(5)
        assert clock.now() == before + 5
        with pytest.raises(ValueError, match="back"):
            clock.advance(-1)
        assert not clock.advance_to_next()


class TestStore(StoreContract):
    @asynccontextmanager
    async def make_stage(self, folder: Path) -> AsyncIterator[Stage]:
        async with (
            harness(folder, clock=VirtualClock()) as running,
            open_reader(Settings(home=str(folder))) as store,
        ):
            yield Stage(running, store)

    @scenario
    async def test_a_start_of_an_id_that_is_under_way_begins_nothing_anew(self, folder: Path) -> None:
        begun, gate = asyncio.Event(), asyncio.Event()
        runs: list[int] = []

        @node("run.once")
        async def once() -> int:
            """Runs until the gate opens."""
            runs.append(len(runs))
            begun.set()
            await gate.wait()
            return len(runs)

        kind = kind_of(once)
        assert kind is not None
        registry = standard_registry().extended([kind])
        plan = compiled({"id": "one", "nodes": [{"id": "a", "type": "run.once"}]}, registry)
        async with harness(folder, clock=VirtualClock(), registry=registry) as running:
            launcher = running.engine.launcher
            first = await launcher.start(plan, b"{}", execution="same")
            await begun.wait()
            begun.clear()
            assert await launcher.start(plan, b"{}", execution="same") == first
            other = await launcher.start(plan, b"{}", execution="other")
            await begun.wait()
            gate.set()
            for each in (first, other):
                await running.until(await running.engine.wait_for(each.id))
            assert len(runs) == 2
