"""Blobs outside of the database keep the same contract, beside a journal that lies elsewhere."""

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
from tests.contract.suites.blob import BlobContract
from tests.contract.test_embedded import left_on_disk, opened
from tests.integration.blobs.s3_server import KEYS, s3_server


@pytest.fixture(autouse=True, scope="module")
def _running() -> None:
    s3_server()


class TestFiles(BlobContract):
    @asynccontextmanager
    async def make_stores(self, folder: Path) -> AsyncIterator[tuple[SqliteJournal, FilesystemBlobs]]:
        (folder / "blobs").mkdir(exist_ok=True)
        async with opened(folder) as embedded:
            yield embedded.journal, FilesystemBlobs(folder / "blobs")

    def crashed(self, folder: Path) -> Path:
        copy = left_on_disk(folder)
        shutil.copytree(folder / "blobs", copy / "blobs")
        return copy


class TestS3(BlobContract):
    @asynccontextmanager
    async def make_stores(self, folder: Path) -> AsyncIterator[tuple[SqliteJournal, S3Blobs]]:
        # A crash of ours leaves the bucket as it is.
        whole = folder.parent if folder.name == "left" else folder
        prefix = f"contract/{hashlib.sha256(str(whole).encode()).hexdigest()[:16]}"
        async with opened(folder) as embedded:
            yield embedded.journal, S3Blobs(s3_server().bucket(prefix), KEYS)

    def crashed(self, folder: Path) -> Path:
        return left_on_disk(folder)
