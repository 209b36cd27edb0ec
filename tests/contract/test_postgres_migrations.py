"""Each step of the schema, alone: from the one before, twice, by several at once, while others work."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from rune.adapters.postgres.database import Database, DatabaseRefusedError, migrations
from rune.adapters.postgres.migrations import migrate
from rune.adapters.postgres.stores import postgres
from rune.ports.journal import NewerFormatError, StoreUnavailableError
from tests.contract.suites.records import accepted, result
from tests.support.services.databases import dsn_of, ready
from tests.support.services.postgres import Server, database_of, server

STEPS = migrations()
NUMBERS = range(1, len(STEPS) + 1)
LATER = ("9999_more.sql", "ALTER TABLE fact ADD COLUMN extra integer")


@pytest.fixture(autouse=True, scope="module")
def running() -> Server:
    return ready()


def empty(folder: Path, suffix: str = "") -> tuple[str, str]:
    """A database without a schema: its name and how to reach it."""
    name = database_of(folder) + suffix
    return name, server().create(name)


def shape(name: str) -> str:
    """Everything that the steps made."""
    return server().sql(
        "SELECT 'column', table_name, column_name, data_type, is_nullable FROM information_schema.columns"
        " WHERE table_schema = 'public'"
        " UNION ALL SELECT 'index', tablename, indexname, indexdef, '' FROM pg_indexes WHERE schemaname = 'public'"
        " UNION ALL SELECT 'function', proname, prosrc, array_to_string(proconfig, ','), ''"
        " FROM pg_proc WHERE pronamespace = 'public'::regnamespace ORDER BY 1, 2, 3",
        name,
    )


def taken(name: str) -> list[str]:
    return server().sql("SELECT name FROM rune_migration ORDER BY number", name).splitlines()


def test_the_steps_are_numbered_without_gaps() -> None:
    assert [int(name[:4]) for name, _ in STEPS] == list(NUMBERS)


@pytest.mark.parametrize("number", NUMBERS)
def test_a_step_follows_the_one_before_and_is_taken_once(number: int, tmp_path: Path) -> None:
    name, dsn = empty(tmp_path)
    asyncio.run(migrate(dsn, STEPS[: number - 1]))

    assert asyncio.run(migrate(dsn, STEPS[:number])) == [STEPS[number - 1][0]]
    before = shape(name)
    assert asyncio.run(migrate(dsn, STEPS[:number])) == []
    assert shape(name) == before
    assert taken(name) == [each for each, _ in STEPS[:number]]


@pytest.mark.parametrize("number", NUMBERS)
def test_a_step_that_several_take_at_once_is_taken_by_one(number: int, tmp_path: Path) -> None:
    name, dsn = empty(tmp_path)
    asyncio.run(migrate(dsn, STEPS[: number - 1]))

    async def all_at_once() -> list[list[str]]:
        return await asyncio.gather(*(migrate(dsn, STEPS[:number]) for _ in range(6)))

    assert sorted(asyncio.run(all_at_once())) == [[], [], [], [], [], [STEPS[number - 1][0]]]
    assert taken(name) == [each for each, _ in STEPS[:number]]


@pytest.mark.parametrize("number", NUMBERS)
def test_a_step_that_fails_leaves_nothing(number: int, tmp_path: Path) -> None:
    name, dsn = empty(tmp_path)
    asyncio.run(migrate(dsn, STEPS[: number - 1]))
    before = shape(name)
    step, text = STEPS[number - 1]

    with pytest.raises(DatabaseRefusedError):
        asyncio.run(migrate(dsn, [*STEPS[: number - 1], (step, f"{text}; SELECT 1 / 0")]))
    assert shape(name) == before
    assert asyncio.run(migrate(dsn, STEPS[:number])) == [step]


def test_all_steps_taken_by_many_at_once_from_nothing(tmp_path: Path) -> None:
    name, dsn = empty(tmp_path)

    async def all_at_once() -> list[list[str]]:
        return await asyncio.gather(*(migrate(dsn) for _ in range(6)))

    steps = [each for answer in asyncio.run(all_at_once()) for each in answer]
    assert sorted(steps) == taken(name) == [each for each, _ in STEPS]


def test_a_newer_schema_is_left_alone(tmp_path: Path) -> None:
    name, dsn = empty(tmp_path)
    asyncio.run(migrate(dsn, [*STEPS, LATER]))
    before = shape(name)

    for attempt in (migrate(dsn), Database(dsn).open()):
        with pytest.raises(NewerFormatError):
            asyncio.run(attempt)
    assert shape(name) == before


def test_an_older_schema_is_not_worked_on(tmp_path: Path) -> None:
    _, dsn = empty(tmp_path)
    for steps, code in (((), "EMPTY_STORE"), (STEPS[:1], "NEEDS_MIGRATION")):
        if steps:
            asyncio.run(migrate(dsn, steps))
        with pytest.raises(StoreUnavailableError) as refused:
            asyncio.run(Database(dsn).open())
        assert refused.value.code == code


def test_a_database_that_cannot_hold_every_text_is_refused(tmp_path: Path) -> None:
    name = database_of(tmp_path)
    server().sql(f"CREATE DATABASE \"{name}\" TEMPLATE template0 ENCODING 'SQL_ASCII' LOCALE 'C'")

    with pytest.raises(DatabaseRefusedError, match="SQL_ASCII"):
        asyncio.run(migrate(server().dsn(name)))
    assert shape(name) == ""


def test_workers_go_on_while_a_step_is_taken(tmp_path: Path) -> None:
    dsn = dsn_of(tmp_path)

    async def go() -> None:
        async with postgres(dsn) as found:
            await found.journal.accept(accepted())
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
