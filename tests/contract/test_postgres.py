"""Contract tests of the PostgreSQL adapters, each test in a database of its own."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from rune.adapters.encryption import KeySource
from rune.adapters.postgres.access import (
    PostgresApiKeys,
    PostgresAuditLog,
    PostgresCredentials,
    PostgresGrants,
    PostgresSessions,
    PostgresStartLimits,
)
from rune.adapters.postgres.expectations import PostgresExpectations
from rune.adapters.postgres.journal import PostgresBlobs, PostgresJournal
from rune.adapters.postgres.stores import (
    PostgresBulkJobs,
    PostgresCounts,
    PostgresHooks,
    PostgresStores,
    postgres,
)
from rune.adapters.postgres.workflows import PostgresTriggers, PostgresWorkflows
from rune.ports.access import Limits
from rune.ports.clock import SystemClock
from rune.ports.journal import HookStore, Journal
from rune.ports.queries import CountStore, Statistics
from rune.ports.retention import Rule
from rune.runtime.queries.reader import ExecutionReader
from tests.contract.suites.access import AccessContract, AccessStores
from tests.contract.suites.aliases import AliasContract
from tests.contract.suites.blobs import BlobContract
from tests.contract.suites.bulk import BulkContract
from tests.contract.suites.counts import CountContract
from tests.contract.suites.credentials import CredentialContract
from tests.contract.suites.expectations import ExpectationContract, ExpectationStores
from tests.contract.suites.hooks import HookContract
from tests.contract.suites.journal import JournalContract
from tests.contract.suites.retention import ALL, NOW, RetentionContract, RetentionStores
from tests.contract.suites.start_limits import LimitDriver, StartLimitContract
from tests.contract.suites.triggers import TriggerContract
from tests.contract.suites.workflows import WorkflowContract
from tests.support.async_test import async_test
from tests.support.services.databases import dsn_of, left_behind, reader_of, ready
from tests.support.services.postgres import database_of, server

RACER = """
import asyncio, sys
from rune.adapters.postgres.stores import postgres
from rune.ports.access import AppliedLimits, StartLimitError
from tests.contract.suites.records import execution_record

async def race(dsn, name):
    async with postgres(dsn) as found:
        print("ready", flush=True)
        sys.stdin.readline()
        held = AppliedLimits(("key:k1", "workflow:orders"))
        wanted = [execution_record(f"{name}-{n}", workflow="orders") for n in range(40)]
        starts = (found.journal.accept(each, held=held) for each in wanted)
        answers = await asyncio.gather(*starts, return_exceptions=True)
        assert all(each in wanted or isinstance(each, StartLimitError) for each in answers), answers
        print(sum(each in wanted for each in answers), flush=True)

asyncio.run(race(*sys.argv[1:]))
"""


@pytest.fixture(autouse=True, scope="module")
def _running() -> None:
    ready()


@asynccontextmanager
async def postgres_stores(folder: Path, *, read_only: bool = False) -> AsyncIterator[PostgresStores]:
    async with postgres(dsn_of(folder), read_only=read_only) as stores:
        yield stores


class TestJournal(JournalContract):
    @asynccontextmanager
    async def make_journal(self, folder: Path) -> AsyncIterator[PostgresJournal]:
        async with postgres_stores(folder) as stores:
            yield stores.journal

    @asynccontextmanager
    async def make_store(self, folder: Path) -> AsyncIterator[ExecutionReader]:
        async with postgres_stores(folder, read_only=True) as stores:
            yield reader_of(stores)

    def make_crash_copy(self, folder: Path) -> Path:
        return left_behind(folder)


class TestBlobs(BlobContract):
    @asynccontextmanager
    async def make_stores(self, folder: Path) -> AsyncIterator[tuple[PostgresJournal, PostgresBlobs]]:
        async with postgres_stores(folder) as stores:
            yield stores.journal, PostgresBlobs(stores.database)

    def make_crash_copy(self, folder: Path) -> Path:
        return left_behind(folder)


class TestWorkflows(WorkflowContract, AliasContract):
    @asynccontextmanager
    async def make_workflows(self, folder: Path) -> AsyncIterator[tuple[PostgresJournal, PostgresWorkflows]]:
        async with postgres_stores(folder) as stores:
            yield stores.journal, stores.workflows

    @asynccontextmanager
    async def make_reader(self, folder: Path) -> AsyncIterator[PostgresWorkflows]:
        async with postgres_stores(folder, read_only=True) as stores:
            yield stores.workflows

    def make_crash_copy(self, folder: Path) -> Path:
        return left_behind(folder)


class TestRetention(RetentionContract):
    many = 150

    @asynccontextmanager
    async def make_stores(self, folder: Path) -> AsyncIterator[RetentionStores]:
        async with postgres_stores(folder) as stores:
            yield RetentionStores(stores.journal, stores.blob, stores.retention)

    def make_crash_copy(self, folder: Path) -> Path:
        return left_behind(folder)

    @async_test
    async def test_collect_frees_disk_space(self, tmp_path: Path) -> None:
        """Removed rows make room for new ones; `vacuum` returns the space to the disk."""
        async with self.make_stores(tmp_path) as stores:
            for number in range(200):
                await stores.run(f"x{number}")
                await stores.blob.put(f"x{number}/a@/", b"data" * 5_000)
            done = await stores.collect(Rule(keep=1))
            assert done.executions == 199
            assert done.bytes_before > 4_000_000
            assert done.shrinks  # the advice about old files does not apply
            before, after = await stores.retention.vacuum()
            assert before > 4_000_000
            assert after < before * 0.15
            assert await stores.blob.get("x199/a@/") == b"data" * 5_000

    @async_test
    async def test_deployed_version_keeps_its_definition(self, tmp_path: Path) -> None:
        async with postgres_stores(tmp_path) as stores:
            await stores.workflows.deploy(b'{"id": "w"}', "stored", "w", NOW)
        async with postgres_stores(tmp_path) as stores:
            assert (await stores.retention.collect([ALL], NOW)).definitions == 0
            assert await stores.journal.definition("stored") == b'{"id": "w"}'


class TestCredentials(CredentialContract):
    @asynccontextmanager
    async def make_credentials(self, folder: Path, keys: int = 1) -> AsyncIterator[PostgresCredentials]:
        source = KeySource("", folder / "secret.key")
        while keys > 1 and len(source.ring().names) < keys:
            source.add()
        async with postgres_stores(folder) as stores:
            yield PostgresCredentials(stores.database, source)

    def lose_keys(self, folder: Path) -> None:
        (folder / "secret.key").unlink()

    def replace_keys(self, folder: Path) -> None:
        self.lose_keys(folder)
        KeySource("", folder / "secret.key").add()

    def read_disk(self, folder: Path) -> bytes:
        (number,) = self._query(folder, "SELECT oid FROM pg_database WHERE datname = current_database()")
        self._query(folder, "CHECKPOINT")
        data = server().data
        return b"".join(_files(data / "base" / number)) + b"".join(_files(data / "pg_wal"))

    def read_column(self, folder: Path, name: str, column: str) -> Any:
        (found,) = self._query(
            folder, f"SELECT encode({column}, 'hex') FROM credential WHERE name = '{name}'"
        )
        return bytes.fromhex(found)

    def write_column(self, folder: Path, name: str, column: str, value: Any) -> None:
        written = f"'\\x{value.hex()}'" if isinstance(value, bytes) else f"'{value}'"
        self._query(folder, f"UPDATE credential SET {column} = {written} WHERE name = '{name}'")

    def _query(self, folder: Path, text: str) -> list[str]:
        return server().sql(text, database_of(folder)).splitlines()


class TestAccess(AccessContract):
    @asynccontextmanager
    async def make_access_stores(self, folder: Path) -> AsyncIterator[AccessStores]:
        async with postgres_stores(folder) as stores:
            database = stores.database
            credentials = PostgresCredentials(database, KeySource("", folder / "secret.key"))
            yield AccessStores(
                PostgresApiKeys(database),
                PostgresGrants(database),
                PostgresAuditLog(database),
                credentials,
                PostgresSessions(database),
            )

    def execute_directly(self, folder: Path, statement: str) -> str:
        with pytest.raises(Exception) as raised:
            server().sql(statement, database_of(folder))
        return str(raised.value) + str(getattr(raised.value, "stderr", ""))


class TestStartLimits(StartLimitContract):
    @asynccontextmanager
    async def make_driver(self, folder: Path) -> AsyncIterator[LimitDriver]:
        def advance(ms: int) -> None:
            """The database uses its own clock, so the stored times are moved back."""
            server().sql(f"UPDATE start_limit SET filled_at = filled_at - {ms}", database_of(folder))

        async with postgres_stores(folder) as stores:
            yield LimitDriver(
                stores.journal, PostgresStartLimits(stores.database), SystemClock().now, advance
            )

    @async_test
    async def test_running_limit_is_exact_across_processes(self, tmp_path: Path) -> None:
        await self._race(tmp_path, Limits(running=13))

    @async_test
    async def test_rate_limit_is_shared_across_processes(self, tmp_path: Path) -> None:
        await self._race(tmp_path, Limits(rate="1/h", burst=13))

    async def _race(self, folder: Path, limits: Limits) -> None:
        async with self.make_driver(folder) as driver:
            await driver.limits.put("workflow:orders", limits, 1)
            await driver.limits.put("key:k1", Limits(running=1_000), 1)
            pipe = asyncio.subprocess.PIPE
            racers = [
                await asyncio.create_subprocess_exec(
                    sys.executable, "-c", RACER, dsn_of(folder), f"p{number}", stdin=pipe, stdout=pipe
                )
                for number in range(3)
            ]
            for each in racers:
                assert each.stdout is not None
                assert await each.stdout.readline() == b"ready\n"
            outputs = await asyncio.gather(*(each.communicate(b"\n") for each in racers))
            assert sum(int(out) for out, _ in outputs) == 13


class TestCounts(CountContract):
    @asynccontextmanager
    async def make_counts(self, folder: Path) -> AsyncIterator[tuple[CountStore, Statistics]]:
        async with postgres_stores(folder) as stores:
            yield PostgresCounts(stores.database), stores.index.statistics


class TestHooks(HookContract):
    @asynccontextmanager
    async def make_hooks(self, folder: Path) -> AsyncIterator[tuple[Journal, HookStore]]:
        async with postgres_stores(folder) as stores:
            yield stores.journal, PostgresHooks(stores.database)


class TestExpectations(ExpectationContract):
    @asynccontextmanager
    async def make_stores(self, folder: Path) -> AsyncIterator[ExpectationStores]:
        async with postgres_stores(folder) as stores:
            yield ExpectationStores(
                PostgresExpectations(stores.database),
                PostgresTriggers(stores.database),
                stores.journal,
                PostgresHooks(stores.database),
                stores.retention,
            )

    def make_crash_copy(self, folder: Path) -> Path:
        return left_behind(folder)


class TestBulkJobs(BulkContract):
    @asynccontextmanager
    async def make_bulk(self, folder: Path) -> AsyncIterator[PostgresBulkJobs]:
        async with postgres_stores(folder) as stores:
            yield PostgresBulkJobs(stores.database)


class TestTriggers(TriggerContract):
    @asynccontextmanager
    async def make_triggers(self, folder: Path) -> AsyncIterator[PostgresTriggers]:
        async with postgres_stores(folder) as stores:
            yield PostgresTriggers(stores.database)

    def make_crash_copy(self, folder: Path) -> Path:
        return left_behind(folder)


def _files(folder: Path) -> Iterator[bytes]:
    for path in sorted(folder.iterdir()):
        # Another test of the run may just have made the server remove or rename a file.
        with contextlib.suppress(FileNotFoundError):
            if path.is_file():
                yield path.read_bytes()
