"""The adapters of PostgreSQL keep the contracts, each test in a database of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from rune.adapters.encryption import KeySource
from rune.adapters.postgres.credentials import PostgresCredentials
from rune.adapters.postgres.journal import PostgresJournal
from rune.adapters.postgres.stores import PostgresBlobs, PostgresStores, postgres
from rune.adapters.postgres.workflows import PostgresWorkflows
from rune.ports.retention import Rule
from rune.runtime.queries.reader import ExecutionReader
from tests.contract.suites.aliases import AliasContract
from tests.contract.suites.blob import BlobContract
from tests.contract.suites.journal import JournalContract
from tests.contract.suites.library import LibraryContract
from tests.contract.suites.retention import ALL, NOW, Kept, RetentionContract
from tests.contract.suites.scenario import scenario
from tests.contract.suites.secret import SecretContract
from tests.support.services.databases import dsn_of, left_behind, reader_of, ready
from tests.support.services.postgres import database_of, server


@pytest.fixture(autouse=True, scope="module")
def _running() -> None:
    ready()


@asynccontextmanager
async def opened(folder: Path, *, read_only: bool = False) -> AsyncIterator[PostgresStores]:
    async with postgres(dsn_of(folder), read_only=read_only) as found:
        yield found


class TestJournal(JournalContract):
    @asynccontextmanager
    async def make_journal(self, folder: Path) -> AsyncIterator[PostgresJournal]:
        async with opened(folder) as found:
            yield found.journal

    @asynccontextmanager
    async def make_store(self, folder: Path) -> AsyncIterator[ExecutionReader]:
        async with opened(folder, read_only=True) as found:
            yield reader_of(found)

    def crashed(self, folder: Path) -> Path:
        return left_behind(folder)


class TestBlob(BlobContract):
    @asynccontextmanager
    async def make_stores(self, folder: Path) -> AsyncIterator[tuple[PostgresJournal, PostgresBlobs]]:
        async with opened(folder) as found:
            yield found.journal, PostgresBlobs(found.database)

    def crashed(self, folder: Path) -> Path:
        return left_behind(folder)


class TestLibrary(LibraryContract, AliasContract):
    @asynccontextmanager
    async def make_library(self, folder: Path) -> AsyncIterator[tuple[PostgresJournal, PostgresWorkflows]]:
        async with opened(folder) as found:
            yield found.journal, found.workflows

    @asynccontextmanager
    async def make_looker(self, folder: Path) -> AsyncIterator[PostgresWorkflows]:
        async with opened(folder, read_only=True) as found:
            yield found.workflows

    def crashed(self, folder: Path) -> Path:
        return left_behind(folder)


class TestRetention(RetentionContract):
    many = 150

    @asynccontextmanager
    async def make_stores(self, folder: Path) -> AsyncIterator[Kept]:
        async with opened(folder) as found:
            yield Kept(found.journal, found.blob, found.retention)

    def crashed(self, folder: Path) -> Path:
        return left_behind(folder)

    @scenario
    async def test_space_is_given_back(self, folder: Path) -> None:
        """What is gone makes room for what comes; the disk gets it back when the tables are written anew."""
        async with self.make_stores(folder) as kept:
            for number in range(200):
                await kept.run(f"x{number}")
                await kept.blob.put(f"x{number}/a@/", b"data" * 5_000)
            done = await kept.collect(Rule(keep=1))
            assert done.executions == 199
            assert done.bytes_before > 4_000_000
            assert not done.shrinks
            before, after = await kept.retention.vacuum()
            assert before > 4_000_000
            assert after < before * 0.15
            assert await kept.blob.get("x199/a@/") == b"data" * 5_000

    @scenario
    async def test_a_stored_version_keeps_its_definition(self, folder: Path) -> None:
        async with opened(folder) as found:
            await found.workflows.deploy(b'{"id": "w"}', "stored", "w", NOW)
        async with opened(folder) as found:
            assert (await found.retention.collect([ALL], NOW)).definitions == 0
            assert await found.journal.definition("stored") == b'{"id": "w"}'


class TestSecret(SecretContract):
    @asynccontextmanager
    async def make_secret(self, folder: Path, keys: int = 1) -> AsyncIterator[PostgresCredentials]:
        found = KeySource("", folder / "secret.key")
        while keys > 1 and len(found.ring().names) < keys:
            found.add()
        async with opened(folder) as opening:
            yield PostgresCredentials(opening.database, found)

    def lose_keys(self, folder: Path) -> None:
        (folder / "secret.key").unlink()

    def other_keys(self, folder: Path) -> None:
        self.lose_keys(folder)
        KeySource("", folder / "secret.key").add()

    def written(self, folder: Path) -> bytes:
        (number,) = self._asked(folder, "SELECT oid FROM pg_database WHERE datname = current_database()")
        self._asked(folder, "CHECKPOINT")
        data = server().data
        return b"".join(_files(data / "base" / number)) + b"".join(_files(data / "pg_wal"))

    def stored(self, folder: Path, name: str, column: str) -> Any:
        (found,) = self._asked(
            folder, f"SELECT encode({column}, 'hex') FROM credential WHERE name = '{name}'"
        )
        return bytes.fromhex(found)

    def altered(self, folder: Path, name: str, column: str, value: Any) -> None:
        written = f"'\\x{value.hex()}'" if isinstance(value, bytes) else f"'{value}'"
        self._asked(folder, f"UPDATE credential SET {column} = {written} WHERE name = '{name}'")

    def _asked(self, folder: Path, text: str) -> list[str]:
        return server().sql(text, database_of(folder)).splitlines()


def _files(folder: Path) -> Iterator[bytes]:
    for path in sorted(folder.iterdir()):
        if path.is_file():
            yield path.read_bytes()
