"""Blobs outside of the database keep the same contract, beside a journal that lies elsewhere."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from rune.adapters.blobs.files import FileBlob
from rune.adapters.blobs.s3 import S3Blob
from rune.adapters.embedded.journal import EmbeddedJournal
from rune.adapters.embedded.open import Embedded
from rune.testing.clock import VirtualClock
from rune.testing.contracts.blob import BlobContract
from tests.blobs.s3_server import KEYS, s3_server


@pytest.fixture(autouse=True, scope="module")
def _running() -> None:
    s3_server()


@asynccontextmanager
async def journal_in(folder: Path) -> AsyncIterator[EmbeddedJournal]:
    embedded = Embedded(folder / "rune.db", VirtualClock())
    embedded.database.start()
    try:
        yield embedded.journal
    finally:
        await embedded.journal.close()


def left_on_disk(folder: Path) -> Path:
    """What another process would find if this one died now."""
    copy = folder / "left"
    copy.mkdir()
    for name in ("rune.db", "rune.db-wal"):
        if (folder / name).exists():
            shutil.copy(folder / name, copy / name)
    return copy


class TestFiles(BlobContract):
    @asynccontextmanager
    async def make_stores(self, folder: Path) -> AsyncIterator[tuple[EmbeddedJournal, FileBlob]]:
        (folder / "blobs").mkdir(exist_ok=True)
        async with journal_in(folder) as journal:
            yield journal, FileBlob(folder / "blobs")

    def crashed(self, folder: Path) -> Path:
        copy = left_on_disk(folder)
        shutil.copytree(folder / "blobs", copy / "blobs")
        return copy


class TestS3(BlobContract):
    @asynccontextmanager
    async def make_stores(self, folder: Path) -> AsyncIterator[tuple[EmbeddedJournal, S3Blob]]:
        # A crash of ours leaves the bucket as it is.
        whole = folder.parent if folder.name == "left" else folder
        prefix = f"contract/{hashlib.sha256(str(whole).encode()).hexdigest()[:16]}"
        async with journal_in(folder) as journal:
            yield journal, S3Blob(s3_server().bucket(prefix), KEYS)

    def crashed(self, folder: Path) -> Path:
        return left_on_disk(folder)
