"""What every blob store promises, together with the journal whose rows name its keys."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from pathlib import Path

from rune.codec.facts import Large
from rune.core.execution.fact import NodeResult
from rune.ports.blobs import BlobStore
from rune.ports.journal import ExecutionRecord, Journal
from tests.contract.suites.scenario import scenario

Stores = tuple[Journal, BlobStore]


class BlobContract:
    """Subclass it and open journal and blob store in a folder; opened again there, they hold what they held."""

    def make_stores(self, folder: Path) -> AbstractAsyncContextManager[Stores]:
        raise NotImplementedError

    def crashed(self, folder: Path) -> Path:
        """A folder with what a crash at this instant would leave on disk; the stores stay open."""
        raise NotImplementedError

    @scenario
    async def test_what_was_put_is_got(self, folder: Path) -> None:
        async with self.make_stores(folder) as (journal, blob):
            await _accept(journal, "x")
            data = bytes(range(256)) * 4096
            await blob.put("x/a@/", data)
            await blob.put("x/empty@/", b"")
            await journal.record("x", [NodeResult(0, (), 1, "ok")])
            assert await blob.get("x/a@/") == data
            assert await blob.get("x/empty@/") == b""

    @scenario
    async def test_an_unknown_key_is_none(self, folder: Path) -> None:
        async with self.make_stores(folder) as (_, blob):
            assert await blob.get("x/nothing@/") is None

    @scenario
    async def test_putting_again_replaces(self, folder: Path) -> None:
        """The same key is only ever written with the same bytes, or by a run that was dropped."""
        async with self.make_stores(folder) as (journal, blob):
            await _accept(journal, "x")
            await blob.put("x/a@/", b"one")
            await blob.put("x/a@/", b"two")
            await journal.record("x", [NodeResult(0, (), 1, "ok")])
            assert await blob.get("x/a@/") == b"two"

    @scenario
    async def test_deleting_an_execution_drops_its_blobs_alone(self, folder: Path) -> None:
        async with self.make_stores(folder) as (_, blob):
            for key in ("x/a@/", "x/b@/s:1", "xy/a@/"):
                await blob.put(key, key.encode())
            assert await blob.delete("x") == 2
            assert await blob.get("x/a@/") is None
            assert await blob.get("xy/a@/") == b"xy/a@/"
            assert await blob.delete("x") == 0

    @scenario
    async def test_blobs_outlive_the_process(self, folder: Path) -> None:
        async with self.make_stores(folder) as (_, blob):
            await blob.put("x/a@/", b"data")
        async with self.make_stores(folder) as (_, blob):
            assert await blob.get("x/a@/") == b"data"

    @scenario
    async def test_a_row_is_never_there_without_the_blob_it_names(self, folder: Path) -> None:
        async with self.make_stores(folder) as (journal, blob):
            await _accept(journal, "x")
            await blob.put("x/a@/", b"data")
            await journal.record("x", [NodeResult(0, (), 1, "ok", value=Large("x/a@/", 4))])
            left = self.crashed(folder)
        async with self.make_stores(left) as (journal, blob):
            (row,) = await journal.facts("x")
            assert isinstance(row.fact, NodeResult)
            assert row.fact.value == Large("x/a@/", 4)
            assert await blob.get("x/a@/") == b"data"


async def _accept(journal: Journal, execution: str) -> None:
    await journal.accept(ExecutionRecord(id=execution, workflow="w", hash="h", at=1, input=b"{}"))
