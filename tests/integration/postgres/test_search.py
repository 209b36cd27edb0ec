"""Searches of the PostgreSQL adapter read few rows, whatever the planner knows about a table."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg  # type: ignore[import-untyped]
import msgspec
import pytest

from rune.adapters.postgres.database import Connection, Database
from rune.adapters.postgres.journal import PostgresIndex
from rune.ports.queries import ExecutionFilter
from tests.contract.suites.records import execution_record
from tests.support.async_test import async_test
from tests.support.services.databases import dsn_of, ready

EXECUTIONS = 20_000
FEW = EXECUTIONS // 8
WORKFLOWS = 20
HOUR_MS = 3_600_000
CALLS = 8  # more than those for which the server makes a plan of their own without being told to
_ROWS_READ = """
SELECT coalesce(sum(seq_tup_read + coalesce(idx_tup_fetch, 0)), 0)::bigint AS count
FROM pg_stat_xact_user_tables WHERE relname IN ('execution', 'execution_term')
"""


@pytest.fixture(autouse=True, scope="module")
def _running() -> None:
    ready()


class _Counted:
    """A connection that counts the rows which its queries read."""

    def __init__(self, connection: Connection, counts: list[int]) -> None:
        self._connection = connection
        self._counts = counts

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    async def fetch(self, statement: str, *values: Any) -> Sequence[Any]:
        async with self._connection.transaction():
            before = await self._connection.fetchval(_ROWS_READ)
            rows: Sequence[Any] = await self._connection.fetch(statement, *values)
            self._counts.append(await self._connection.fetchval(_ROWS_READ) - before)
        return rows


class _CountedDatabase(Database):
    """A database with one connection, and the number of rows that each query read."""

    def __init__(self, dsn: str) -> None:
        super().__init__(dsn, size=1)
        self.counts: list[int] = []

    @asynccontextmanager
    async def _acquire(self) -> AsyncIterator[Connection]:
        async with super()._acquire() as connection:
            yield _Counted(connection, self.counts)


@asynccontextmanager
async def _filled(folder: Path) -> AsyncIterator[_CountedDatabase]:
    """Yield a database with executions of which the server has not yet noted which rows everybody sees, as it is before
    the first vacuum. One in ten failed, none of them halted, and those with the code are the oldest."""
    connection = await asyncpg.connect(dsn_of(folder))
    await connection.execute("ALTER TABLE execution SET (autovacuum_enabled = off)")
    await connection.execute("ALTER TABLE execution_term SET (autovacuum_enabled = off)")
    record = msgspec.msgpack.encode(execution_record())
    rows = [
        (
            f"x{n}", f"flow-{n % WORKFLOWS}", "h", "completed" if n % 10 else "failed", n * 1_000, n * 1_000 + 5,
            record,
        )
        for n in range(EXECUTIONS)
    ]  # fmt: skip
    columns = ["id", "workflow", "hash", "status", "at", "ended_at", "accepted"]
    await connection.copy_records_to_table("execution", records=rows, columns=columns)
    await connection.execute(
        "INSERT INTO execution_term (term, n) SELECT 'code:' || CASE WHEN at < 600000 THEN 'OLD' ELSE 'NEW' END, n"
        " FROM execution WHERE status = 'failed'"
    )
    await connection.execute("ANALYZE")
    await connection.close()
    database = _CountedDatabase(dsn_of(folder))
    await database.open()
    try:
        yield database
    finally:
        await database.close()


PAGES = {
    "a status, and one that no execution has": (ExecutionFilter(statuses=("failed", "halted")), 50),
    "a status that no execution has": (ExecutionFilter(statuses=("halted",)), 0),
    "a workflow without a failure": (ExecutionFilter(workflow="flow-3", statuses=("failed",)), 0),
    "a workflow with failures only": (ExecutionFilter(workflow="flow-10"), 50),
    "a workflow and a code of the oldest": (ExecutionFilter(workflow="flow-10", code="OLD"), 30),
    "a code of the oldest, and a period": (
        ExecutionFilter(code="OLD", statuses=("failed",), since=0, until=5 * HOUR_MS), 50,
    ),
}  # fmt: skip


@async_test
async def test_pages_read_few_rows_before_the_first_vacuum(tmp_path: Path) -> None:
    read: dict[str, int] = {}
    async with _filled(tmp_path) as database:
        index = PostgresIndex(database)
        for name, (wanted, expected) in PAGES.items():
            database.counts.clear()
            for _ in range(CALLS):
                page = await index.search(wanted, limit=50)
                assert len(page.executions) == expected, name
            read[name] = max(database.counts)
    assert {name: count for name, count in read.items() if count > FEW} == {}


@async_test
async def test_lists_and_recent_executions_read_few_rows_before_the_first_vacuum(tmp_path: Path) -> None:
    async with _filled(tmp_path) as database:
        index = PostgresIndex(database)
        for _ in range(CALLS):
            assert len(await index.executions(ExecutionFilter(statuses=("failed", "halted")), limit=50)) == 50
            assert len(await index.executions(ExecutionFilter(workflow="flow-3"), limit=50)) == 50
            assert len(await index.statistics.recent("flow-3", 20)) == 20
        assert 0 < max(database.counts) <= FEW
