"""Retention removes external blobs."""

from __future__ import annotations

from pathlib import Path

import pytest

from rune.adapters.blobs.filesystem import FilesystemBlobs
from rune.adapters.blobs.s3 import S3Blobs
from rune.adapters.postgres.stores import postgres
from rune.ports.journal import BlobStore, StoreUnavailableError
from tests.contract.suites.retention import ALL, RetentionStores
from tests.support.async_test import async_test
from tests.support.services.databases import dsn_of, ready
from tests.support.services.postgres import database_of, server
from tests.support.services.s3_server import KEYS, s3_server


@pytest.fixture(autouse=True, scope="module")
def _running() -> None:
    ready()
    s3_server()


def files_in(folder: Path) -> FilesystemBlobs:
    (folder / "blobs").mkdir()
    return FilesystemBlobs(folder / "blobs")


async def check_collect(folder: Path, blobs: BlobStore) -> None:
    async with postgres(dsn_of(folder), outside=blobs) as found:
        stores = RetentionStores(found.journal, found.blob, found.retention)
        for name in ("a", "b"):
            await stores.run(name, hours=2)
            await found.blob.put(f"{name}/x@/", b"data")
        await stores.begin("running")
        await found.blob.put("running/x@/", b"data")
        done = await stores.collect(ALL)
    assert (done.executions, done.blobs) == (2, 2)
    assert await blobs.get("a/x@/") is None
    assert await blobs.get("running/x@/") == b"data"


class TestRetention:
    @async_test
    async def test_files_are_removed_with_execution(self, tmp_path: Path) -> None:
        await check_collect(tmp_path, files_in(tmp_path))

    @async_test
    async def test_objects_are_removed_with_execution(self, tmp_path: Path) -> None:
        await check_collect(tmp_path, S3Blobs(s3_server().bucket(f"retention/{tmp_path.name}"), KEYS))

    @async_test
    async def test_unreachable_blobs_are_removed_later(self, tmp_path: Path) -> None:
        blobs = files_in(tmp_path)
        async with postgres(dsn_of(tmp_path), outside=blobs) as found:
            stores = RetentionStores(found.journal, found.blob, found.retention)
            await stores.run("a", hours=2)
            await blobs.put("a/x@/", b"data")
            blobs.folder.rename(tmp_path / "elsewhere")
            with pytest.raises(StoreUnavailableError):
                await stores.collect(ALL)
            (tmp_path / "elsewhere").rename(blobs.folder)
            assert (await stores.collect(ALL)).blobs == 0  # the first removal may still be running
            server().sql("UPDATE removed SET leaving = leaving - 1000000", database_of(tmp_path))
            assert (await stores.collect(ALL)).blobs == 1
        assert await blobs.get("a/x@/") is None
