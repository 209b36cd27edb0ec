"""Both stores of keys, grants and the log keep the contract."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from rune.adapters.encryption import KeySource
from rune.adapters.postgres.access import PostgresApiKeys, PostgresAuditLog
from rune.adapters.postgres.credentials import PostgresCredentials, PostgresGrants
from rune.adapters.postgres.stores import postgres
from rune.adapters.sqlite.access import SqliteApiKeys, SqliteAuditLog
from rune.adapters.sqlite.credentials import SqliteCredentials, SqliteGrants
from rune.adapters.sqlite.readonly import ReadOnlyDatabase
from tests.contract.suites.access import AccessContract, Stores
from tests.contract.suites.scenario import scenario
from tests.contract.test_embedded import opened
from tests.support.services.databases import dsn_of, ready
from tests.support.services.postgres import database_of, server


@pytest.fixture(autouse=True, scope="module")
def _running() -> None:
    ready()


class TestEmbedded(AccessContract):
    @asynccontextmanager
    async def make_access(self, folder: Path) -> AsyncIterator[Stores]:
        async with opened(folder) as embedded:
            database = embedded.database
            secret = SqliteCredentials(database, KeySource("", folder / "secret.key"))
            yield Stores(SqliteApiKeys(database), SqliteGrants(database), SqliteAuditLog(database), secret)

    def tampered(self, folder: Path, statement: str) -> str:
        with closing(sqlite3.connect(folder / "rune.db")) as db, pytest.raises(sqlite3.Error) as refused:
            db.execute(statement)
        return str(refused.value)

    @scenario
    async def test_a_file_of_an_earlier_program_holds_nothing_for_who_only_looks(self, folder: Path) -> None:
        with closing(sqlite3.connect(folder / "rune.db")) as db:
            db.execute("PRAGMA user_version = 1")
        database = ReadOnlyDatabase(folder / "rune.db")
        try:
            assert await SqliteApiKeys(database).list() == []
            assert await SqliteAuditLog(database).read() == []
            assert await SqliteGrants(database).of("c1") == {"everyone"}
        finally:
            database.close()


class TestPostgres(AccessContract):
    @asynccontextmanager
    async def make_access(self, folder: Path) -> AsyncIterator[Stores]:
        async with postgres(dsn_of(folder)) as found:
            base = found.database
            secret = PostgresCredentials(base, KeySource("", folder / "secret.key"))
            yield Stores(PostgresApiKeys(base), PostgresGrants(base), PostgresAuditLog(base), secret)

    def tampered(self, folder: Path, statement: str) -> str:
        with pytest.raises(Exception) as refused:
            server().sql(statement, database_of(folder))
        return str(refused.value) + str(getattr(refused.value, "stderr", ""))
