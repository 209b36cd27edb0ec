"""Migrations of the PostgreSQL schema: each alone, twice, concurrently and under load."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from rune.adapters.postgres.database import Database, DatabaseRefusedError, migrations
from rune.adapters.postgres.schema import migrate
from rune.adapters.postgres.stores import postgres
from rune.ports.journal import NewerFormatError, StoreUnavailableError
from tests.contract.suites.records import execution_record, result
from tests.support.services.databases import dsn_of, ready
from tests.support.services.postgres import Server, database_of, server

pytestmark = pytest.mark.long

STEPS = migrations()
NUMBERS = range(1, len(STEPS) + 1)
LATER = ("9999_more.sql", "ALTER TABLE fact ADD COLUMN extra integer")


@pytest.fixture(autouse=True, scope="module")
def running() -> Server:
    return ready()


def empty_database(folder: Path, suffix: str = "") -> tuple[str, str]:
    """Create a database without a schema; return its name and DSN."""
    name = database_of(folder) + suffix
    return name, server().create(name)


def schema(name: str) -> str:
    """Return all columns, indexes and functions."""
    return server().sql(
        "SELECT 'column', table_name, column_name, data_type, is_nullable FROM information_schema.columns"
        " WHERE table_schema = 'public'"
        " UNION ALL SELECT 'index', tablename, indexname, indexdef, '' FROM pg_indexes WHERE schemaname = 'public'"
        " UNION ALL SELECT 'function', proname, prosrc, array_to_string(proconfig, ','), ''"
        " FROM pg_proc WHERE pronamespace = 'public'::regnamespace ORDER BY 1, 2, 3",
        name,
    )


def applied(name: str) -> list[str]:
    return server().sql("SELECT name FROM rune_migration ORDER BY number", name).splitlines()


def test_migrations_are_numbered_without_gaps() -> None:
    assert [int(name[:4]) for name, _ in STEPS] == list(NUMBERS)


@pytest.mark.parametrize("number", NUMBERS)
def test_migration_is_applied_once(number: int, tmp_path: Path) -> None:
    name, dsn = empty_database(tmp_path)
    asyncio.run(migrate(dsn, STEPS[: number - 1]))

    assert asyncio.run(migrate(dsn, STEPS[:number])) == [STEPS[number - 1][0]]
    before = schema(name)
    assert asyncio.run(migrate(dsn, STEPS[:number])) == []
    assert schema(name) == before
    assert applied(name) == [each for each, _ in STEPS[:number]]


@pytest.mark.parametrize("number", NUMBERS)
def test_concurrent_migrations_apply_each_step_once(number: int, tmp_path: Path) -> None:
    name, dsn = empty_database(tmp_path)
    asyncio.run(migrate(dsn, STEPS[: number - 1]))

    async def migrate_concurrently() -> list[list[str]]:
        return await asyncio.gather(*(migrate(dsn, STEPS[:number]) for _ in range(6)))

    assert sorted(asyncio.run(migrate_concurrently())) == [[], [], [], [], [], [STEPS[number - 1][0]]]
    assert applied(name) == [each for each, _ in STEPS[:number]]


@pytest.mark.parametrize("number", NUMBERS)
def test_failed_migration_is_rolled_back(number: int, tmp_path: Path) -> None:
    name, dsn = empty_database(tmp_path)
    asyncio.run(migrate(dsn, STEPS[: number - 1]))
    before = schema(name)
    step, text = STEPS[number - 1]

    with pytest.raises(DatabaseRefusedError):
        asyncio.run(migrate(dsn, [*STEPS[: number - 1], (step, f"{text}; SELECT 1 / 0")]))
    assert schema(name) == before
    assert asyncio.run(migrate(dsn, STEPS[:number])) == [step]


def test_concurrent_migrations_of_empty_database(tmp_path: Path) -> None:
    name, dsn = empty_database(tmp_path)

    async def migrate_concurrently() -> list[list[str]]:
        return await asyncio.gather(*(migrate(dsn) for _ in range(6)))

    steps = [each for answer in asyncio.run(migrate_concurrently()) for each in answer]
    assert sorted(steps) == applied(name) == [each for each, _ in STEPS]


def test_newer_schema_is_rejected_unchanged(tmp_path: Path) -> None:
    name, dsn = empty_database(tmp_path)
    asyncio.run(migrate(dsn, [*STEPS, LATER]))
    before = schema(name)

    for attempt in (migrate(dsn), Database(dsn).open()):
        with pytest.raises(NewerFormatError):
            asyncio.run(attempt)
    assert schema(name) == before


def test_older_schema_is_rejected_on_open(tmp_path: Path) -> None:
    _, dsn = empty_database(tmp_path)
    for steps, code in (((), "EMPTY_STORE"), (STEPS[:1], "NEEDS_MIGRATION")):
        if steps:
            asyncio.run(migrate(dsn, steps))
        with pytest.raises(StoreUnavailableError) as raised:
            asyncio.run(Database(dsn).open())
        assert raised.value.code == code


def test_database_without_utf8_is_rejected(tmp_path: Path) -> None:
    name = database_of(tmp_path)
    server().sql(f"CREATE DATABASE \"{name}\" TEMPLATE template0 ENCODING 'SQL_ASCII' LOCALE 'C'")

    with pytest.raises(DatabaseRefusedError, match="SQL_ASCII"):
        asyncio.run(migrate(server().dsn(name)))
    assert schema(name) == ""


def test_writes_continue_during_migration(tmp_path: Path) -> None:
    dsn = dsn_of(tmp_path)

    async def go() -> None:
        async with postgres(dsn) as found:
            await found.journal.accept(execution_record())
            stop = asyncio.Event()
            written = 0

            async def work() -> None:
                nonlocal written
                while not stop.is_set():
                    fact = result(written)
                    assert (await found.journal.record("x", [fact]))[0] is fact
                    written += 1

            working = asyncio.create_task(work())
            try:
                assert await migrate(dsn, [*STEPS, LATER]) == [LATER[0]]
            finally:
                stop.set()
                await working
            await found.journal.record("x", [result(written)])
            assert len(await found.journal.facts("x")) == written + 1

    asyncio.run(go())
