"""Lists read of each record what they show, whatever its payload, and whichever version wrote it."""

from __future__ import annotations

import asyncio
import threading
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import asyncpg  # type: ignore[import-untyped]
import msgspec
import pytest

from rune.adapters.postgres.database import Database as PostgresDatabase
from rune.adapters.postgres.journal import PostgresIndex
from rune.adapters.sqlite import list_reader
from rune.adapters.sqlite.stores import SqliteIndex
from rune.codec.records import encode_record
from rune.core.execution.stored_value import Inline
from rune.ports.journal import ExecutionRecord, StoreUnavailableError
from rune.ports.queries import ExecutionFilter, Executions, Summary
from tests.contract.suites.records import execution_record
from tests.support.async_test import async_test
from tests.support.services.databases import dsn_of, ready
from tests.support.sqlite_stores import sqlite_stores

pytestmark = pytest.mark.long

PAYLOAD = b'"' + b"x" * 1_000_000 + b'"'
EXECUTIONS = 100
MAX_READ_BYTES = 10_000_000
LONG = {f"label {each}": "value " * 30 for each in range(20)}
Rows = dict[str, bytes]


def record(labels: dict[str, str], payload: bytes = PAYLOAD) -> ExecutionRecord:
    return execution_record(input=Inline(payload), labels=labels, version=3, alias="stable")


def as_before(written: ExecutionRecord) -> bytes:
    """Return a record as earlier versions wrote it: the input, whole, is the fifth field."""
    fields = msgspec.msgpack.decode(encode_record(written))
    first = {name: fields.pop(name) for name in ("id", "workflow", "hash", "at", "input")}
    return msgspec.msgpack.encode(first | fields)


@asynccontextmanager
async def sqlite(folder: Path, rows: Rows) -> AsyncIterator[Executions]:
    async with sqlite_stores(folder) as stores:
        values = [(each, "w", "h", 1, 1, data) for each, data in rows.items()]
        await stores.database.submit(
            lambda db: db.executemany(
                "INSERT INTO execution (id, workflow, hash, at, wake_at, accepted) VALUES (?, ?, ?, ?, ?, ?)",
                values,
            )
        )
        yield SqliteIndex(stores.database)


@asynccontextmanager
async def postgres(folder: Path, rows: Rows) -> AsyncIterator[Executions]:
    dsn = dsn_of(folder)
    connection = await asyncpg.connect(dsn)
    await connection.copy_records_to_table(
        "execution",
        records=[(each, "w", "h", "running", 1, data) for each, data in rows.items()],
        columns=["id", "workflow", "hash", "status", "at", "accepted"],
    )
    await connection.close()
    database = PostgresDatabase(dsn)
    await database.open()
    try:
        yield PostgresIndex(database)
    finally:
        await database.close()


Opening = Callable[[Path, Rows], AbstractAsyncContextManager[Executions]]
every_store = pytest.mark.parametrize("opened", [sqlite, postgres], ids=["sqlite", "postgres"])


@pytest.fixture(autouse=True, scope="module")
def _running() -> None:
    ready()


@pytest.fixture
def traced() -> Iterator[None]:
    tracemalloc.start()
    yield
    tracemalloc.stop()


LISTS: dict[str, Callable[[Executions], Awaitable[list[Summary]]]] = {
    "newest": lambda index: index.executions(limit=EXECUTIONS),
    "status": lambda index: index.executions(ExecutionFilter(statuses=("running",)), limit=EXECUTIONS),
    "workflow": lambda index: index.executions(ExecutionFilter(workflow="w"), limit=EXECUTIONS),
    "search": lambda index: _found(index, ExecutionFilter(workflow="w")),
}


async def _found(index: Executions, wanted: ExecutionFilter) -> list[Summary]:
    return (await index.search(wanted, limit=EXECUTIONS)).executions


@every_store
@pytest.mark.parametrize("name", LISTS)
@pytest.mark.parametrize("written", [as_before, encode_record], ids=["before", "now"])
@async_test
async def test_list_reads_no_payloads(
    tmp_path: Path, traced: None, opened: Opening, name: str, written: Callable[[ExecutionRecord], bytes]
) -> None:
    data = written(record({"team": "a"}))
    async with opened(tmp_path, {f"x{each}": data for each in range(EXECUTIONS)}) as index:
        tracemalloc.reset_peak()
        before, _ = tracemalloc.get_traced_memory()
        found = await LISTS[name](index)
        _, peak = tracemalloc.get_traced_memory()

    assert [(each.labels, each.version, each.alias) for each in found] == [
        ({"team": "a"}, 3, "stable")
    ] * EXECUTIONS
    assert peak - before < MAX_READ_BYTES


@every_store
@async_test
async def test_list_shows_the_same_of_records_of_every_size_and_version(
    tmp_path: Path, opened: Opening
) -> None:
    sizes = [1, 255, 256, 1_000, 2_000, 2_048, 5_000, 32_768, 65_535, 65_536, 1_000_000]
    rows: Rows = {}
    expected = {}
    for size in sizes:
        for labels in ({}, {"team": "a"}, LONG):
            for written in (as_before, encode_record):
                id = f"x{len(rows)}"
                rows[id] = written(record(labels, b"1" * size))
                expected[id] = labels
    async with opened(tmp_path, rows) as index:
        listed = await index.executions(limit=len(rows))
        single = [await index.execution(each) for each in rows]

    assert {each.id: each.labels for each in listed} == expected
    assert {each.id: each.labels for each in single if each is not None} == expected
    assert {(each.version, each.alias) for each in listed} == {(3, "stable")}


@async_test
async def test_list_of_a_file_is_read_beside_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    continued = threading.Event()
    waited: list[bool] = []

    class Waiting(list_reader.ListReader):
        def _run(self, query):  # type: ignore[no-untyped-def]
            waited.append(continued.wait(30))
            return super()._run(query)

    monkeypatch.setattr("rune.adapters.sqlite.database.ListReader", Waiting)
    async with sqlite(tmp_path, {"x": encode_record(record({}))}) as index:
        reading = asyncio.gather(*(each(index) for each in LISTS.values()))
        await asyncio.sleep(0)
        continued.set()
        found = await reading

    assert [len(each) for each in found] == [1] * len(LISTS)
    assert waited
    assert all(waited)


@async_test
async def test_list_that_takes_too_long_names_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with sqlite(tmp_path, {f"x{each}": encode_record(record({}, b"1")) for each in range(50)}) as index:
        monkeypatch.setattr(list_reader, "LIST_TIMEOUT_S", -1.0)
        monkeypatch.setattr(list_reader, "STEPS", 1)
        with pytest.raises(StoreUnavailableError, match=r"took longer than its limit of -1 s"):
            await index.executions()
        monkeypatch.undo()
        assert len(await index.executions()) == 50
