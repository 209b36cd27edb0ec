"""Retention where others write, collect and keep blobs elsewhere at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from rune.adapters.blobs.filesystem import FilesystemBlobs
from rune.adapters.postgres.stores import PostgresStores, postgres
from rune.codec.facts import Large
from rune.core.execution.fact import ExecutionEnded, NodeResult
from rune.ports.blobs import BlobStore
from rune.ports.journal import ExecutionRecord, ExecutionRemovedError
from rune.ports.retention import Rule
from tests.contract.suites.retention import ALL, HOUR, NOW, Kept
from tests.contract.suites.scenario import scenario
from tests.support.services.databases import dsn_of, ready
from tests.support.services.postgres import database_of, server

PATIENCE = 60.0
HELD_UP = 0.5  # s after which somebody who has not come further is taken to be held up
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


class Slow:
    """Blobs whose removal takes as long as the test says."""

    def __init__(self, blobs: BlobStore) -> None:
        self.begun, self.may = asyncio.Event(), asyncio.Event()
        self.at = ""
        self.deleted_new: list[str] = []
        self._blobs = blobs

    async def put(self, key: str, data: bytes) -> None:
        await self._blobs.put(key, data)

    async def get(self, key: str) -> bytes | None:
        return await self._blobs.get(key)

    async def delete(self, execution: str) -> int:
        self.at = execution
        self.begun.set()
        await self.may.wait()
        if await self._blobs.get(f"{execution}/n@/") == b"new":
            self.deleted_new.append(execution)
        return await self._blobs.delete(execution)


async def _begun(found: PostgresStores, blobs: BlobStore, name: str) -> None:
    """Another execution of this id, with a blob of its own."""
    await found.journal.accept(ExecutionRecord(id=name, workflow="w", hash="h", at=NOW, input=b"{}"))
    await blobs.put(f"{name}/n@/", b"new")


def _later(folder: Path) -> None:
    """Whoever was removing blobs has been silent for so long that nothing of it can be under way."""
    server().sql("UPDATE removed SET leaving = leaving - 1000000", database_of(folder))


@asynccontextmanager
async def kept_in(folder: Path, shelf: BlobStore | None = None) -> AsyncIterator[tuple[PostgresStores, Kept]]:
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
                await found.journal.count_claim(f"x{number}", 1, (), (1, 1), 1)
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
                again = ExecutionRecord(id=f"again-{name}", workflow="v", hash="h", at=NOW, input=b"{}")
                value = Large(f"{name}/a@/", 4)
                started, _ = await asyncio.gather(
                    one.journal.accept(again, [NodeResult(1, (), 1, "ok", value=value)]),
                    two.collect(Rule(workflow="w", keep=0)),
                    return_exceptions=True,
                )
                there = await kept.blob.get(f"{name}/a@/") is not None
                assert there == (not isinstance(started, ExecutionRemovedError))
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
            assert (await kept.collect(ALL)).blobs == 0
            _later(folder)
            assert (await kept.collect(ALL)).blobs == 1
            assert shelf.data == {}

    @scenario
    async def test_an_id_that_is_used_again_keeps_its_new_blobs(self, folder: Path) -> None:
        """The new one may begin at any moment: before the removal looks, while it is under way, and behind it."""
        for place in ("files", "shelf"):
            blobs: BlobStore = FilesystemBlobs(folder) if place == "files" else Shelf()
            slow = Slow(blobs)
            async with kept_in(folder / place, slow) as (found, kept):
                for name in ("a", "b"):
                    await kept.run(name, hours=2)
                    await slow.put(f"{name}/n@/", b"old")
                removing = asyncio.create_task(found.retention.collect([ALL], NOW))
                async with asyncio.timeout(PATIENCE):
                    await slow.begun.wait()
                    again = asyncio.create_task(_begun(found, slow, slow.at))
                    assert not (await asyncio.wait({again}, timeout=HELD_UP))[0]
                    slow.may.set()
                    await again
                    await removing
                    for name in ("a", "b"):
                        await _begun(found, slow, name)
                await found.retention.collect([ALL], NOW)
                await found.retention.collect([ALL], NOW + 24 * HOUR)
                assert [await slow.get(f"{name}/n@/") for name in ("a", "b")] == [b"new", b"new"]
                assert slow.deleted_new == []

    @scenario
    async def test_only_one_removes_the_blobs_of_an_id_at_a_time(self, folder: Path) -> None:
        """Otherwise the first to come to its end would give the id away while the second is still at it."""
        slow = Slow(Shelf())
        async with kept_in(folder, slow) as (found, kept), postgres(dsn_of(folder), outside=slow) as other:
            await kept.run("a", hours=2)
            await slow.put("a/n@/", b"old")
            async with asyncio.timeout(PATIENCE):
                first = asyncio.create_task(found.retention.collect([ALL], NOW))
                await slow.begun.wait()
                slow.begun.clear()
                assert (await other.retention.collect([ALL], NOW)).blobs == 0
                assert not slow.begun.is_set()
                slow.may.set()
                assert (await first).blobs == 1
        assert counts(folder)["removed"] == 0

    @scenario
    async def test_who_died_over_a_removal_holds_up_nobody_for_ever(self, folder: Path) -> None:
        shelf = Shelf()
        async with kept_in(folder, shelf) as (found, kept):
            await kept.run("a", hours=2)
            await shelf.put("a/n@/", b"old")
            shelf.failing = True
            with pytest.raises(OSError, match="not now"):
                await found.retention.collect([ALL], NOW)
            _later(folder)
            await _begun(found, shelf, "a")
            shelf.failing = False
            await found.retention.collect([ALL], NOW)
            assert await shelf.get("a/n@/") == b"new"

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
                found.journal.record("x", [ExecutionEnded(NOW - HOUR, "completed")]), kept.collect(ALL)
            )
            assert len(ending) == 1
            assert done.executions + (await kept.collect(ALL)).executions == 1
