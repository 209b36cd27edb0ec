"""Contract tests of the blob stores outside of the database."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from rune.adapters.blobs.filesystem import FilesystemBlobs
from rune.adapters.blobs.s3 import S3Blobs
from rune.adapters.sqlite.journal import SqliteJournal
from tests.contract.suites.blobs import BlobContract
from tests.support.services.s3_server import KEYS, s3_server
from tests.support.sqlite_stores import copy_sqlite_files, sqlite_stores


@pytest.fixture(autouse=True, scope="module")
def _running() -> None:
    s3_server()


class TestFiles(BlobContract):
    @asynccontextmanager
    async def make_stores(self, folder: Path) -> AsyncIterator[tuple[SqliteJournal, FilesystemBlobs]]:
        (folder / "blobs").mkdir(exist_ok=True)
        async with sqlite_stores(folder) as stores:
            yield stores.journal, FilesystemBlobs(folder / "blobs")

    def make_crash_copy(self, folder: Path) -> Path:
        copy = copy_sqlite_files(folder)
        shutil.copytree(folder / "blobs", copy / "blobs")
        return copy


class TestS3(BlobContract):
    @asynccontextmanager
    async def make_stores(self, folder: Path) -> AsyncIterator[tuple[SqliteJournal, S3Blobs]]:
        # A crash of this process leaves the bucket unchanged.
        original = folder.parent if folder.name == "left" else folder
        prefix = f"contract/{hashlib.sha256(str(original).encode()).hexdigest()[:16]}"
        async with sqlite_stores(folder) as stores:
            yield stores.journal, S3Blobs(s3_server().bucket(prefix), KEYS)

    def make_crash_copy(self, folder: Path) -> Path:
        return copy_sqlite_files(folder)
