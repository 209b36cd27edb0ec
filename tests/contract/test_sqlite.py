"""Contract tests of the SQLite adapters."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest

from rune.adapters.encryption import KeySource
from rune.adapters.sqlite.access import (
    SqliteApiKeys,
    SqliteAuditLog,
    SqliteCredentials,
    SqliteGrants,
    SqliteSessions,
    SqliteStartLimits,
)
from rune.adapters.sqlite.database import Database
from rune.adapters.sqlite.expectations import SqliteExpectations
from rune.adapters.sqlite.journal import SqliteJournal
from rune.adapters.sqlite.queue import SqliteQueue
from rune.adapters.sqlite.state import SqliteState
from rune.adapters.sqlite.stores import (
    ReadOnlyDatabase,
    SqliteBlobs,
    SqliteBulkJobs,
    SqliteCounts,
    SqliteHooks,
    SqliteIndex,
)
from rune.adapters.sqlite.workflows import SqliteTriggers, SqliteWorkflows
from rune.bootstrap import open_reader
from rune.core.plan.model import Plan
from rune.ports.clock import SystemClock
from rune.ports.journal import HookStore, Journal, NewerFormatError
from rune.ports.queries import CountStore, Statistics
from rune.ports.state import State
from rune.runtime.queries.reader import ExecutionReader
from rune.settings import Settings
from rune.testing.harness import VirtualClock, harness
from tests.contract.suites.access import AccessContract, AccessStores
from tests.contract.suites.aliases import AliasContract
from tests.contract.suites.blobs import BlobContract
from tests.contract.suites.bulk import BulkContract
from tests.contract.suites.counts import CountContract
from tests.contract.suites.credentials import CredentialContract
from tests.contract.suites.expectations import ExpectationContract, ExpectationStores
from tests.contract.suites.hooks import HookContract
from tests.contract.suites.journal import JournalContract
from tests.contract.suites.queries import QueryContract, QuerySetup
from tests.contract.suites.queue import QueueContract
from tests.contract.suites.retention import ALL, NOW, RetentionContract, RetentionStores
from tests.contract.suites.start_limits import LimitDriver, StartLimitContract
from tests.contract.suites.state import StateContract
from tests.contract.suites.triggers import TriggerContract
from tests.contract.suites.workflows import WorkflowContract
from tests.support.async_test import async_test
from tests.support.sqlite_stores import copy_sqlite_files, sqlite_stores


class TestJournal(JournalContract):
    @asynccontextmanager
    async def make_journal(self, folder: Path) -> AsyncIterator[SqliteJournal]:
        async with sqlite_stores(folder) as stores:
            yield stores.journal

    @asynccontextmanager
    async def make_store(self, folder: Path) -> AsyncIterator[ExecutionReader]:
        async with open_reader(Settings(home=str(folder))) as store:
            yield store

    def make_crash_copy(self, folder: Path) -> Path:
        return copy_sqlite_files(folder)

    @async_test
    async def test_file_of_newer_version_is_rejected_unchanged(self, tmp_path: Path) -> None:
        async with sqlite_stores(tmp_path):
            pass
        with sqlite3.connect(tmp_path / "rune.db") as other:
            other.execute("PRAGMA user_version = 99")
        other.close()
        with pytest.raises(NewerFormatError):
            Database(tmp_path / "rune.db")
        with sqlite3.connect(tmp_path / "rune.db") as other:
            assert other.execute("PRAGMA user_version").fetchone() == (99,)
        other.close()


class TestBlobs(BlobContract):
    @asynccontextmanager
    async def make_stores(self, folder: Path) -> AsyncIterator[tuple[SqliteJournal, SqliteBlobs]]:
        async with sqlite_stores(folder) as stores:
            yield stores.journal, stores.blob

    def make_crash_copy(self, folder: Path) -> Path:
        return copy_sqlite_files(folder)


class TestWorkflows(WorkflowContract, AliasContract):
    @asynccontextmanager
    async def make_workflows(self, folder: Path) -> AsyncIterator[tuple[SqliteJournal, SqliteWorkflows]]:
        async with sqlite_stores(folder) as stores:
            yield stores.journal, SqliteWorkflows(stores.database)

    @asynccontextmanager
    async def make_reader(self, folder: Path) -> AsyncIterator[SqliteWorkflows]:
        database = ReadOnlyDatabase(folder / "rune.db")
        try:
            yield SqliteWorkflows(database)
        finally:
            database.close()

    def make_crash_copy(self, folder: Path) -> Path:
        return copy_sqlite_files(folder)


class TestState(StateContract):
    @asynccontextmanager
    async def make_stores(
        self, folder: Path, clock: VirtualClock, plans: Mapping[str, Plan]
    ) -> AsyncIterator[tuple[SqliteJournal, State]]:
        async with sqlite_stores(folder, clock) as stores:
            yield stores.journal, self.make_state(stores.journal, clock, plans)

    def make_state(self, journal: Journal, clock: VirtualClock, plans: Mapping[str, Plan]) -> State:
        async def plan(hash: str) -> Plan:
            return plans[hash]

        assert isinstance(journal, SqliteJournal)
        return SqliteState(journal, plan, clock)

    def make_crash_copy(self, folder: Path) -> Path:
        return copy_sqlite_files(folder)


class TestQueue(QueueContract):
    @asynccontextmanager
    async def make_queue(self, folder: Path) -> AsyncIterator[SqliteQueue]:
        yield SqliteQueue()


class TestQueries(QueryContract):
    @asynccontextmanager
    async def make_setup(self, folder: Path) -> AsyncIterator[QuerySetup]:
        async with (
            harness(folder, clock=VirtualClock()) as running,
            open_reader(Settings(home=str(folder))) as store,
        ):
            yield QuerySetup(running, store)


class TestAccess(AccessContract):
    @asynccontextmanager
    async def make_access_stores(self, folder: Path) -> AsyncIterator[AccessStores]:
        async with sqlite_stores(folder) as stores:
            database = stores.database
            credentials = SqliteCredentials(database, KeySource("", folder / "secret.key"))
            yield AccessStores(
                SqliteApiKeys(database),
                SqliteGrants(database),
                SqliteAuditLog(database),
                credentials,
                SqliteSessions(database),
            )

    def execute_directly(self, folder: Path, statement: str) -> str:
        with closing(sqlite3.connect(folder / "rune.db")) as db, pytest.raises(sqlite3.Error) as raised:
            db.execute(statement)
        return str(raised.value)

    @async_test
    async def test_file_of_older_version_reads_as_empty(self, tmp_path: Path) -> None:
        with closing(sqlite3.connect(tmp_path / "rune.db")) as db:
            db.execute("PRAGMA user_version = 1")
        database = ReadOnlyDatabase(tmp_path / "rune.db")
        try:
            assert await SqliteApiKeys(database).list() == []
            assert await SqliteAuditLog(database).read() == []
            assert await SqliteGrants(database).of("c1") == {"everyone"}
        finally:
            database.close()


class TestStartLimits(StartLimitContract):
    @asynccontextmanager
    async def make_driver(self, folder: Path) -> AsyncIterator[LimitDriver]:
        clock = VirtualClock()
        elapsed = 0

        def advance(ms: int) -> None:
            nonlocal elapsed
            elapsed += ms

        async with sqlite_stores(folder, clock) as stores:
            limits = SqliteStartLimits(stores.database)
            yield LimitDriver(stores.journal, limits, lambda: clock.now() + elapsed, advance)


class TestRetention(RetentionContract):
    @asynccontextmanager
    async def make_stores(self, folder: Path) -> AsyncIterator[RetentionStores]:
        async with sqlite_stores(folder) as stores:
            yield RetentionStores(stores.journal, stores.blob, stores.retention)

    def make_crash_copy(self, folder: Path) -> Path:
        return copy_sqlite_files(folder)

    @async_test
    async def test_deployed_version_keeps_its_definition(self, tmp_path: Path) -> None:
        async with sqlite_stores(tmp_path) as stores:
            await SqliteWorkflows(stores.database).deploy(b'{"id": "w"}', "stored", "w", NOW)
        async with sqlite_stores(tmp_path) as stores:
            assert (await stores.retention.collect([ALL], NOW)).definitions == 0
            assert await stores.journal.definition("stored") == b'{"id": "w"}'


class TestCredentials(CredentialContract):
    @asynccontextmanager
    async def make_credentials(self, folder: Path, keys: int = 1) -> AsyncIterator[SqliteCredentials]:
        source = KeySource("", folder / "secret.key")
        while keys > 1 and len(source.ring().names) < keys:
            source.add()
        async with sqlite_stores(folder) as stores:
            yield SqliteCredentials(stores.database, source)

    def lose_keys(self, folder: Path) -> None:
        (folder / "secret.key").unlink()

    def replace_keys(self, folder: Path) -> None:
        self.lose_keys(folder)
        KeySource("", folder / "secret.key").add()

    def read_disk(self, folder: Path) -> bytes:
        return b"".join(path.read_bytes() for path in folder.glob("rune.db*"))

    def read_column(self, folder: Path, name: str, column: str) -> Any:
        with closing(sqlite3.connect(folder / "rune.db")) as db:
            (found,) = db.execute(f"SELECT {column} FROM credential WHERE name = ?", (name,)).fetchone()
        return found

    def write_column(self, folder: Path, name: str, column: str, value: Any) -> None:
        with closing(sqlite3.connect(folder / "rune.db")) as db, db:
            db.execute(f"UPDATE credential SET {column} = ? WHERE name = ?", (value, name))


class TestCounts(CountContract):
    @asynccontextmanager
    async def make_counts(self, folder: Path) -> AsyncIterator[tuple[CountStore, Statistics]]:
        async with sqlite_stores(folder) as stores:
            yield SqliteCounts(stores.database), SqliteIndex(stores.database).statistics


class TestHooks(HookContract):
    @asynccontextmanager
    async def make_hooks(self, folder: Path) -> AsyncIterator[tuple[Journal, HookStore]]:
        async with sqlite_stores(folder) as stores:
            yield stores.journal, SqliteHooks(stores.database, SystemClock())


class TestExpectations(ExpectationContract):
    @asynccontextmanager
    async def make_stores(self, folder: Path) -> AsyncIterator[ExpectationStores]:
        async with sqlite_stores(folder) as stores:
            yield ExpectationStores(
                SqliteExpectations(stores.database),
                SqliteTriggers(stores.database),
                stores.journal,
                SqliteHooks(stores.database, SystemClock()),
                stores.retention,
            )

    def make_crash_copy(self, folder: Path) -> Path:
        return copy_sqlite_files(folder)


class TestBulkJobs(BulkContract):
    @asynccontextmanager
    async def make_bulk(self, folder: Path) -> AsyncIterator[SqliteBulkJobs]:
        async with sqlite_stores(folder) as stores:
            yield SqliteBulkJobs(stores.database)


class TestTriggers(TriggerContract):
    @asynccontextmanager
    async def make_triggers(self, folder: Path) -> AsyncIterator[SqliteTriggers]:
        async with sqlite_stores(folder) as stores:
            yield SqliteTriggers(stores.database)

    def make_crash_copy(self, folder: Path) -> Path:
        return copy_sqlite_files(folder)
