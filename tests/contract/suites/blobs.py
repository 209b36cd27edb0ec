"""Contract of blob stores, together with the journal whose facts reference their keys."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from pathlib import Path

from rune.core.execution.fact import NodeResult
from rune.core.execution.stored_value import Inline, Large
from rune.ports.journal import BlobStore, ExecutionRecord, Journal
from tests.support.async_test import async_test

Stores = tuple[Journal, BlobStore]


class BlobContract:
    """Subclasses open journal and blob store in a folder; opened again there, they have the same content."""

    def make_stores(self, folder: Path) -> AbstractAsyncContextManager[Stores]:
        raise NotImplementedError

    def make_crash_copy(self, folder: Path) -> Path:
        """Copy what a crash at this moment would leave on disk to a new folder; the stores stay open."""
        raise NotImplementedError

    @async_test
    async def test_get_returns_put_bytes(self, tmp_path: Path) -> None:
        async with self.make_stores(tmp_path) as (journal, blob):
            await _accept(journal, "x")
            data = bytes(range(256)) * 4096
            await blob.put("x/a@/", data)
            await blob.put("x/empty@/", b"")
            await journal.record("x", [NodeResult(0, (), 1, "ok")])
            assert await blob.get("x/a@/") == data
            assert await blob.get("x/empty@/") == b""

    @async_test
    async def test_get_of_unknown_key_returns_none(self, tmp_path: Path) -> None:
        async with self.make_stores(tmp_path) as (_, blob):
            assert await blob.get("x/nothing@/") is None

    @async_test
    async def test_second_put_replaces_blob(self, tmp_path: Path) -> None:
        """A key is only written again with the same bytes or by an attempt that was dropped."""
        async with self.make_stores(tmp_path) as (journal, blob):
            await _accept(journal, "x")
            await blob.put("x/a@/", b"one")
            await blob.put("x/a@/", b"two")
            await journal.record("x", [NodeResult(0, (), 1, "ok")])
            assert await blob.get("x/a@/") == b"two"

    @async_test
    async def test_delete_removes_only_blobs_of_execution(self, tmp_path: Path) -> None:
        async with self.make_stores(tmp_path) as (_, blob):
            for key in ("x/a@/", "x/b@/s:1", "xy/a@/"):
                await blob.put(key, key.encode())
            assert await blob.delete("x") == 2
            assert await blob.get("x/a@/") is None
            assert await blob.get("xy/a@/") == b"xy/a@/"
            assert await blob.delete("x") == 0

    @async_test
    async def test_blobs_survive_reopen(self, tmp_path: Path) -> None:
        async with self.make_stores(tmp_path) as (_, blob):
            await blob.put("x/a@/", b"data")
        async with self.make_stores(tmp_path) as (_, blob):
            assert await blob.get("x/a@/") == b"data"

    @async_test
    async def test_blob_of_committed_row_survives_crash(self, tmp_path: Path) -> None:
        async with self.make_stores(tmp_path) as (journal, blob):
            await _accept(journal, "x")
            await blob.put("x/a@/", b"data")
            await journal.record("x", [NodeResult(0, (), 1, "ok", value=Large("x/a@/", 4))])
            crash_copy = self.make_crash_copy(tmp_path)
        async with self.make_stores(crash_copy) as (journal, blob):
            (row,) = await journal.facts("x")
            assert isinstance(row.fact, NodeResult)
            assert row.fact.value == Large("x/a@/", 4)
            assert await blob.get("x/a@/") == b"data"


async def _accept(journal: Journal, execution: str) -> None:
    await journal.accept(ExecutionRecord(id=execution, workflow="w", hash="h", at=1, input=Inline(b"{}")))
