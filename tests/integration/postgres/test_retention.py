"""Retention on PostgreSQL with concurrent writers, concurrent collections and external blobs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from rune.adapters.blobs.filesystem import FilesystemBlobs
from rune.adapters.postgres.stores import PostgresStores, postgres
from rune.core.execution.fact import ExecutionEnded, NodeResult
from rune.core.execution.stored_value import Inline, Large
from rune.ports.journal import BlobStore, ExecutionRecord, ExecutionRemovedError
from rune.ports.retention import Rule
from tests.contract.suites.retention import ALL, HOUR, NOW, RetentionStores
from tests.support.async_test import async_test
from tests.support.services.databases import dsn_of, ready
from tests.support.services.postgres import database_of, server

TIMEOUT_S = 60.0
BLOCKED_S = 0.5  # a task without progress for so long is taken to be blocked
TABLES = ("execution", "fact", "claim", "blob", "needs", "dead_letter", "removed", "outbox")


@pytest.fixture(autouse=True, scope="module")
def _running() -> None:
    ready()


class MemoryBlobs:
    """External blobs in memory, whose removal can fail."""

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


class BlockingBlobs:
    """Blobs whose removal waits until the test allows it."""

    def __init__(self, blobs: BlobStore) -> None:
        self.deleting, self.may_delete = asyncio.Event(), asyncio.Event()
        self.execution = ""
        self.deleted_new: list[str] = []
        self._blobs = blobs

    async def put(self, key: str, data: bytes) -> None:
        await self._blobs.put(key, data)

    async def get(self, key: str) -> bytes | None:
        return await self._blobs.get(key)

    async def delete(self, execution: str) -> int:
        self.execution = execution
        self.deleting.set()
        await self.may_delete.wait()
        if await self._blobs.get(f"{execution}/n@/") == b"new":
            self.deleted_new.append(execution)
        return await self._blobs.delete(execution)


async def _start_again(found: PostgresStores, blobs: BlobStore, name: str) -> None:
    """Start another execution of this id, with a blob of its own."""
    await found.journal.accept(ExecutionRecord(id=name, workflow="w", hash="h", at=NOW, input=Inline(b"{}")))
    await blobs.put(f"{name}/n@/", b"new")


def _expire_removals(folder: Path) -> None:
    """Make every started blob removal old enough to be taken over."""
    server().sql("UPDATE removed SET leaving = leaving - 1000000", database_of(folder))


@asynccontextmanager
async def retention_stores(
    folder: Path, external: BlobStore | None = None
) -> AsyncIterator[tuple[PostgresStores, RetentionStores]]:
    async with postgres(dsn_of(folder), outside=external) as found:
        yield found, RetentionStores(found.journal, found.blob, found.retention)


def counts(folder: Path) -> dict[str, int]:
    """Return the number of rows by table."""
    query = " UNION ALL ".join(f"SELECT '{each}', count(*) FROM {each}" for each in TABLES)
    lines = server().sql(query, database_of(folder)).splitlines()
    return {name: int(count) for name, _, count in (line.partition("|") for line in lines)}


class TestRetention:
    @async_test
    async def test_collect_empties_every_table(self, tmp_path: Path) -> None:
        async with retention_stores(tmp_path) as (found, stores):
            for number in range(30):
                await found.journal.count_claim(f"x{number}", 1, (), (1, 1), 1)
                await stores.run(f"x{number}", status="failed")
                await stores.blob.put(f"x{number}/a@/", b"data")
            assert counts(tmp_path)["outbox"] == 60
            assert (await stores.collect(ALL)).executions == 30
        assert counts(tmp_path) == dict.fromkeys(TABLES, 0)

    @async_test
    async def test_concurrent_collects_remove_each_execution_once(self, tmp_path: Path) -> None:
        async with retention_stores(tmp_path) as (_, one), retention_stores(tmp_path) as (_, two):
            await asyncio.gather(*(one.run(f"x{number}") for number in range(300)))
            done = await asyncio.gather(one.collect(ALL), two.collect(ALL), one.collect(Rule(keep=5)))
            assert sum(each.executions for each in done) == 300
            assert sum(each.facts for each in done) == 600
        assert counts(tmp_path)["fact"] == 0

    @async_test
    async def test_rerun_racing_removal_keeps_blob_or_is_rejected(self, tmp_path: Path) -> None:
        """One process removes the execution while another starts its rerun."""
        async with retention_stores(tmp_path) as (one, stores), retention_stores(tmp_path) as (_, two):
            for number in range(20):
                name = f"x{number}"
                await stores.run(name)
                await stores.blob.put(f"{name}/a@/", b"data")
                again = ExecutionRecord(
                    id=f"again-{name}", workflow="v", hash="h", at=NOW, input=Inline(b"{}")
                )
                value = Large(f"{name}/a@/", 4)
                started, _ = await asyncio.gather(
                    one.journal.accept(again, [NodeResult(1, (), 1, "ok", value=value)]),
                    two.collect(Rule(workflow="w", keep=0)),
                    return_exceptions=True,
                )
                there = await stores.blob.get(f"{name}/a@/") is not None
                assert there == (not isinstance(started, ExecutionRemovedError))
                assert (await one.journal.accepted(again.id) is not None) == there

    @async_test
    async def test_external_blobs_are_removed(self, tmp_path: Path) -> None:
        external = MemoryBlobs()
        async with retention_stores(tmp_path, external) as (_, stores):
            for name in ("a", "b", "c"):
                await stores.run(name, hours=2)
                await stores.blob.put(f"{name}/x@/", b"data")
            await stores.begin("running")
            await stores.blob.put("running/x@/", b"data")
            done = await stores.collect(ALL)
            assert (done.executions, done.blobs) == (3, 3)
            assert list(external.data) == ["running/x@/"]
        assert counts(tmp_path)["removed"] == 0

    @async_test
    async def test_failed_blob_removal_is_retried(self, tmp_path: Path) -> None:
        external = MemoryBlobs()
        async with retention_stores(tmp_path, external) as (_, stores):
            await stores.run("a", hours=2)
            await stores.blob.put("a/x@/", b"data")
            external.failing = True
            with pytest.raises(OSError, match="not now"):
                await stores.collect(ALL)
            assert await stores.existing("a") == ""
            external.failing = False
            assert (await stores.collect(ALL)).blobs == 0
            _expire_removals(tmp_path)
            assert (await stores.collect(ALL)).blobs == 1
            assert external.data == {}

    @async_test
    async def test_reused_id_keeps_its_new_blobs(self, tmp_path: Path) -> None:
        """The new execution may start before, during or after the removal."""
        for kind in ("files", "memory"):
            blobs: BlobStore = FilesystemBlobs(tmp_path) if kind == "files" else MemoryBlobs()
            slow = BlockingBlobs(blobs)
            async with retention_stores(tmp_path / kind, slow) as (found, stores):
                for name in ("a", "b"):
                    await stores.run(name, hours=2)
                    await slow.put(f"{name}/n@/", b"old")
                removing = asyncio.create_task(found.retention.collect([ALL], NOW))
                async with asyncio.timeout(TIMEOUT_S):
                    await slow.deleting.wait()
                    again = asyncio.create_task(_start_again(found, slow, slow.execution))
                    assert not (await asyncio.wait({again}, timeout=BLOCKED_S))[0]
                    slow.may_delete.set()
                    await again
                    await removing
                    for name in ("a", "b"):
                        await _start_again(found, slow, name)
                await found.retention.collect([ALL], NOW)
                await found.retention.collect([ALL], NOW + 24 * HOUR)
                assert [await slow.get(f"{name}/n@/") for name in ("a", "b")] == [b"new", b"new"]
                assert slow.deleted_new == []

    @async_test
    async def test_blobs_of_one_id_are_removed_by_one_process(self, tmp_path: Path) -> None:
        """Otherwise the first to finish would free the id while the second still deletes."""
        slow = BlockingBlobs(MemoryBlobs())
        async with (
            retention_stores(tmp_path, slow) as (found, stores),
            postgres(dsn_of(tmp_path), outside=slow) as other,
        ):
            await stores.run("a", hours=2)
            await slow.put("a/n@/", b"old")
            async with asyncio.timeout(TIMEOUT_S):
                first = asyncio.create_task(found.retention.collect([ALL], NOW))
                await slow.deleting.wait()
                slow.deleting.clear()
                assert (await other.retention.collect([ALL], NOW)).blobs == 0
                assert not slow.deleting.is_set()
                slow.may_delete.set()
                assert (await first).blobs == 1
        assert counts(tmp_path)["removed"] == 0

    @async_test
    async def test_abandoned_blob_removal_frees_id_after_timeout(self, tmp_path: Path) -> None:
        external = MemoryBlobs()
        async with retention_stores(tmp_path, external) as (found, stores):
            await stores.run("a", hours=2)
            await external.put("a/n@/", b"old")
            external.failing = True
            with pytest.raises(OSError, match="not now"):
                await found.retention.collect([ALL], NOW)
            _expire_removals(tmp_path)
            await _start_again(found, external, "a")
            external.failing = False
            await found.retention.collect([ALL], NOW)
            assert await external.get("a/n@/") == b"new"

    @async_test
    async def test_preview_removes_nothing(self, tmp_path: Path) -> None:
        async with retention_stores(tmp_path) as (found, stores):
            for number in range(5):
                await stores.run(f"x{number}", hours=number + 1)
            seen = await found.retention.preview([Rule(older_than=3 * HOUR)], NOW)
            assert (seen.executions, seen.shrinks) == (3, True)
            assert len((await stores.existing("x0 x1 x2 x3 x4")).split()) == 5

    @async_test
    async def test_end_during_collect_is_removed_by_this_or_next_collect(self, tmp_path: Path) -> None:
        async with retention_stores(tmp_path) as (found, stores):
            await stores.begin("x")
            ending, done = await asyncio.gather(
                found.journal.record("x", [ExecutionEnded(NOW - HOUR, "completed")]), stores.collect(ALL)
            )
            assert len(ending) == 1
            assert done.executions + (await stores.collect(ALL)).executions == 1
