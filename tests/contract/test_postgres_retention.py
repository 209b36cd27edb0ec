"""Retention where others write, collect and keep blobs elsewhere at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from rune.adapters.postgres.open import Postgres, postgres
from rune.core.fact import End, Result
from rune.ports.journal import Accepted, Gone
from rune.ports.retention import Rule
from rune.testing.contracts.retention import ALL, HOUR, NOW, Kept
from rune.testing.contracts.scenario import scenario
from rune.wire.codec import Large
from tests.services.databases import dsn_of, ready
from tests.services.postgres import database_of, server

TABLES = ("execution", "fact", "claim", "blob", "needs", "dead_letter", "removed", "outbox")


@pytest.fixture(autouse=True, scope="module")
def _running() -> None:
    ready()


class Shelf:
    """Blobs that lie somewhere else."""

    def __init__(self) -> None:
        self.data: dict[str, bytes] = {}
        self.failing = False

    async def put(self, key: str, data: bytes) -> None:
        self.data[key] = data

    async def get(self, key: str) -> bytes | None:
        return self.data.get(key)

    async def delete(self, execution: str) -> int:
        if self.failing:
            raise OSError("not now")
        keys = [key for key in self.data if key.startswith(f"{execution}/")]
        for key in keys:
            del self.data[key]
        return len(keys)


@asynccontextmanager
async def kept_in(folder: Path, shelf: Shelf | None = None) -> AsyncIterator[tuple[Postgres, Kept]]:
    async with postgres(dsn_of(folder), outside=shelf) as found:
        yield found, Kept(found.journal, found.blob, found.retention)


def counts(folder: Path) -> dict[str, int]:
    """Rows by table."""
    asked = " UNION ALL ".join(f"SELECT '{each}', count(*) FROM {each}" for each in TABLES)
    lines = server().sql(asked, database_of(folder)).splitlines()
    return {name: int(count) for name, _, count in (line.partition("|") for line in lines)}


class TestRetention:
    @scenario
    async def test_nothing_is_left_in_any_table(self, folder: Path) -> None:
        async with kept_in(folder) as (found, kept):
            for number in range(30):
                await found.journal.claimed(f"x{number}", 1, (), (1, 1), 1)
                await kept.run(f"x{number}", status="failed")
                await kept.blob.put(f"x{number}/a@/", b"data")
            assert counts(folder)["outbox"] == 60
            assert (await kept.collect(ALL)).executions == 30
        assert counts(folder) == dict.fromkeys(TABLES, 0)

    @scenario
    async def test_several_collect_at_once_and_each_goes_once(self, folder: Path) -> None:
        async with kept_in(folder) as (_, one), kept_in(folder) as (_, two):
            await asyncio.gather(*(one.run(f"x{number}") for number in range(300)))
            done = await asyncio.gather(one.collect(ALL), two.collect(ALL), one.collect(Rule(keep=5)))
            assert sum(each.executions for each in done) == 300
            assert sum(each.facts for each in done) == 600
        assert counts(folder)["fact"] == 0

    @scenario
    async def test_a_rerun_begins_with_what_it_needs_or_not_at_all(self, folder: Path) -> None:
        """Removal and start of the one that needs it, at once, by two processes."""
        async with kept_in(folder) as (one, kept), kept_in(folder) as (_, two):
            for number in range(20):
                name = f"x{number}"
                await kept.run(name)
                await kept.blob.put(f"{name}/a@/", b"data")
                again = Accepted(id=f"again-{name}", workflow="v", hash="h", at=NOW, input=b"{}")
                value = Large(f"{name}/a@/", 4)
                started, _ = await asyncio.gather(
                    one.journal.accept(again, [Result(1, (), 1, "ok", value=value)]),
                    two.collect(Rule(workflow="w", keep=0)),
                    return_exceptions=True,
                )
                there = await kept.blob.get(f"{name}/a@/") is not None
                assert there == (not isinstance(started, Gone))
                assert (await one.journal.accepted(again.id) is not None) == there

    @scenario
    async def test_blobs_that_lie_elsewhere_go_too(self, folder: Path) -> None:
        shelf = Shelf()
        async with kept_in(folder, shelf) as (_, kept):
            for name in ("a", "b", "c"):
                await kept.run(name, hours=2)
                await kept.blob.put(f"{name}/x@/", b"data")
            await kept.begin("running")
            await kept.blob.put("running/x@/", b"data")
            done = await kept.collect(ALL)
            assert (done.executions, done.blobs) == (3, 3)
            assert list(shelf.data) == ["running/x@/"]
        assert counts(folder)["removed"] == 0

    @scenario
    async def test_blobs_that_could_not_go_are_tried_again(self, folder: Path) -> None:
        shelf = Shelf()
        async with kept_in(folder, shelf) as (_, kept):
            await kept.run("a", hours=2)
            await kept.blob.put("a/x@/", b"data")
            shelf.failing = True
            with pytest.raises(OSError, match="not now"):
                await kept.collect(ALL)
            assert await kept.left("a") == ""
            shelf.failing = False
            assert (await kept.collect(ALL)).blobs == 1
            assert shelf.data == {}

    @scenario
    async def test_a_preview_removes_nothing(self, folder: Path) -> None:
        async with kept_in(folder) as (found, kept):
            for number in range(5):
                await kept.run(f"x{number}", hours=number + 1)
            seen = await found.retention.preview([Rule(older_than=3 * HOUR)], NOW)
            assert (seen.executions, seen.shrinks) == (3, False)
            assert len((await kept.left("x0 x1 x2 x3 x4")).split()) == 5

    @scenario
    async def test_an_end_is_not_lost_between_two_collections(self, folder: Path) -> None:
        async with kept_in(folder) as (found, kept):
            await kept.begin("x")
            ending, done = await asyncio.gather(
                found.journal.record("x", [End(NOW - HOUR, "completed")]), kept.collect(ALL)
            )
            assert len(ending) == 1
            assert done.executions + (await kept.collect(ALL)).executions == 1
