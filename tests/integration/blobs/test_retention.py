"""An execution that is removed from the database takes along what it has outside."""

from __future__ import annotations

from pathlib import Path

import pytest

from rune.adapters.blobs.filesystem import FilesystemBlobs
from rune.adapters.blobs.s3 import S3Blobs
from rune.adapters.postgres.stores import postgres
from rune.ports.blobs import BlobStore
from rune.ports.journal import StoreUnavailableError
from tests.contract.suites.retention import ALL, Kept
from tests.contract.suites.scenario import scenario
from tests.integration.blobs.s3_server import KEYS, s3_server
from tests.support.services.databases import dsn_of, ready
from tests.support.services.postgres import database_of, server


@pytest.fixture(autouse=True, scope="module")
def _running() -> None:
    ready()
    s3_server()


def files_in(folder: Path) -> FilesystemBlobs:
    (folder / "blobs").mkdir()
    return FilesystemBlobs(folder / "blobs")


async def collected(folder: Path, outside: BlobStore) -> None:
    async with postgres(dsn_of(folder), outside=outside) as found:
        kept = Kept(found.journal, found.blob, found.retention)
        for name in ("a", "b"):
            await kept.run(name, hours=2)
            await found.blob.put(f"{name}/x@/", b"data")
        await kept.begin("running")
        await found.blob.put("running/x@/", b"data")
        done = await kept.collect(ALL)
    assert (done.executions, done.blobs) == (2, 2)
    assert await outside.get("a/x@/") is None
    assert await outside.get("running/x@/") == b"data"


class TestRetention:
    @scenario
    async def test_files_go_with_their_execution(self, folder: Path) -> None:
        await collected(folder, files_in(folder))

    @scenario
    async def test_objects_go_with_their_execution(self, folder: Path) -> None:
        await collected(folder, S3Blobs(s3_server().bucket(f"retention/{folder.name}"), KEYS))

    @scenario
    async def test_what_was_out_of_reach_goes_the_next_time(self, folder: Path) -> None:
        outside = files_in(folder)
        async with postgres(dsn_of(folder), outside=outside) as found:
            kept = Kept(found.journal, found.blob, found.retention)
            await kept.run("a", hours=2)
            await outside.put("a/x@/", b"data")
            outside.folder.rename(folder / "elsewhere")
            with pytest.raises(StoreUnavailableError):
                await kept.collect(ALL)
            (folder / "elsewhere").rename(outside.folder)
            assert (await kept.collect(ALL)).blobs == 0  # something of the first time may still be under way
            server().sql("UPDATE removed SET leaving = leaving - 1000000", database_of(folder))
            assert (await kept.collect(ALL)).blobs == 1
        assert await outside.get("a/x@/") is None
