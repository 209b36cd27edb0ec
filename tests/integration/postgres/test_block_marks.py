"""Notes of executions that block a worker are shared by all processes, and outlive the one that wrote them."""

from __future__ import annotations

import asyncio
from pathlib import Path

from rune.adapters.postgres.block_marks import PostgresBlockMarks
from rune.adapters.postgres.stores import postgres
from rune.core.execution.fact import ExecutionEnded
from tests.contract.suites.records import execution_record
from tests.support.async_test import async_test
from tests.support.services.databases import dsn_of

PASS_TEN_SECONDS = "UPDATE loop_block SET at = at - 10001"


@async_test
async def test_note_of_killed_process_counts_and_removed_one_does_not(tmp_path: Path) -> None:
    dsn = dsn_of(tmp_path)
    async with postgres(dsn) as stores:
        database = stores.database
        for name in ("dead", "alive", "over"):
            await stores.journal.accept(execution_record(name))
        killed, alive = (PostgresBlockMarks(database, dsn, name) for name in ("w1", "w2"))
        await asyncio.to_thread(killed.suspect, "dead")
        await asyncio.to_thread(alive.suspect, "alive")
        await asyncio.to_thread(alive.clear, "alive")
        await asyncio.to_thread(killed.suspect, "over")
        await stores.journal.record("over", [ExecutionEnded(3, "completed")])
        await alive.refresh()
        assert alive.blocks().get("dead", 0) == 0, "it may still run again"

        await database.fetch(PASS_TEN_SECONDS)
        await alive.refresh()
        assert alive.blocks() == {"dead": 1}
        await alive.tidy()
        rows = await database.fetch("SELECT execution FROM loop_block")
        assert [row["execution"] for row in rows] == ["dead"]


@async_test
async def test_long_block_counts_once_and_at_once(tmp_path: Path) -> None:
    dsn = dsn_of(tmp_path)
    async with postgres(dsn) as stores:
        await stores.journal.accept(execution_record("x"))
        first, second = (PostgresBlockMarks(stores.database, dsn, name) for name in ("w1", "w2"))
        for marks, count in ((first, 1), (second, 2), (first, 3)):
            await asyncio.to_thread(marks.suspect, "x")
            assert await asyncio.to_thread(marks.add, "x") == count
            await asyncio.to_thread(marks.clear, "x")
        await second.quarantine("x", "why")
        await first.refresh()
        assert (first.blocks(), first.quarantined()) == ({}, {"x": "why"})
        await first.forget("x")
        await second.refresh()
        assert (second.blocks(), second.quarantined()) == ({}, {})
