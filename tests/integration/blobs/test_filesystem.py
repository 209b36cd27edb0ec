"""Blobs as files: crashes, hostile keys, outages and concurrency."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rune.adapters.blobs.filesystem import FilesystemBlobs
from rune.ports.journal import StoreUnavailableError
from tests.integration.blobs.hostile_keys import (
    HOSTILE_KEYS,
    check_hostile_keys,
    check_invalid_executions,
    check_invalid_keys,
)
from tests.support.async_test import async_test

CRASH_SCRIPT = """
import asyncio, os, sys
from pathlib import Path
from rune.adapters.blobs.filesystem import FilesystemBlobs
os.replace = lambda *names: os._exit(9)
asyncio.run(FilesystemBlobs(Path(sys.argv[1])).put("x/a@/", b"new" * 100_000))
"""


def make_blobs(folder: Path) -> FilesystemBlobs:
    blobs = folder / "blobs"
    blobs.mkdir()
    return FilesystemBlobs(blobs)


def paths_in(folder: Path) -> set[Path]:
    return {each.relative_to(folder) for each in folder.rglob("*")}


def files(blob: FilesystemBlobs) -> list[Path]:
    return [each for each in blob.folder.rglob("*") if each.is_file()]


def crash_before_rename(blob: FilesystemBlobs) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", CRASH_SCRIPT, str(blob.folder)], env=environment, check=False
    )
    assert done.returncode == 9


class TestCrash:
    @async_test
    async def test_crash_before_rename_leaves_no_blob(self, tmp_path: Path) -> None:
        blob = make_blobs(tmp_path)
        crash_before_rename(blob)
        assert len(files(blob)) == 1
        assert await blob.get("x/a@/") is None
        await blob.put("x/a@/", b"again")
        assert await blob.get("x/a@/") == b"again"

    @async_test
    async def test_crash_before_rename_keeps_old_blob(self, tmp_path: Path) -> None:
        blob = make_blobs(tmp_path)
        await blob.put("x/a@/", b"old")
        crash_before_rename(blob)
        assert await blob.get("x/a@/") == b"old"

    @async_test
    async def test_delete_removes_leftover_of_crash(self, tmp_path: Path) -> None:
        blob = make_blobs(tmp_path)
        await blob.put("x/a@/", b"old")
        crash_before_rename(blob)
        assert await blob.delete("x") == 1
        assert files(blob) == []

    @async_test
    async def test_put_syncs_file_before_rename_and_folder_after(self, tmp_path: Path) -> None:
        blob = make_blobs(tmp_path)
        calls: list[str] = []
        sync, rename = os.fsync, os.replace

        def syncing(descriptor: int) -> None:
            calls.append(f"sync {Path(os.readlink(f'/proc/self/fd/{descriptor}')).relative_to(blob.folder)}")
            sync(descriptor)

        def renaming(old: Path, new: Path) -> None:
            calls.append(f"rename {old.relative_to(blob.folder)} {new.relative_to(blob.folder)}")
            rename(old, new)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "fsync", syncing)
            patch.setattr(os, "replace", renaming)
            await blob.put("x/a@/", b"data")
        (target,) = (each.relative_to(blob.folder) for each in files(blob))
        top, middle, home = target.parents[2], target.parents[1], target.parents[0]
        temporary = calls[3].removeprefix("sync ")
        assert calls == [
            "sync .",
            f"sync {top}",
            f"sync {middle}",
            f"sync {temporary}",
            f"rename {temporary} {target}",
            f"sync {home}",
        ]


class TestHostile:
    @async_test
    async def test_hostile_keys_stay_in_folder(self, tmp_path: Path) -> None:
        (tmp_path / "outside").mkdir()
        (tmp_path / "outside" / "a").write_bytes(b"other")
        blob = make_blobs(tmp_path)
        await check_hostile_keys(blob)
        assert {each.parts[0] for each in paths_in(tmp_path)} == {"outside", "blobs"}
        assert (tmp_path / "outside" / "a").read_bytes() == b"other"
        assert await blob.delete("..") == 2
        assert await blob.delete(".") == 1
        assert (tmp_path / "outside" / "a").read_bytes() == b"other"
        assert len(files(blob)) == len(HOSTILE_KEYS) - 3

    @async_test
    async def test_invalid_keys_are_rejected(self, tmp_path: Path) -> None:
        blob = make_blobs(tmp_path)
        await check_invalid_keys(blob)
        assert paths_in(blob.folder) == set()

    @async_test
    async def test_invalid_execution_ids_are_rejected(self, tmp_path: Path) -> None:
        blob = make_blobs(tmp_path)
        await blob.put("x/a", b"data")
        await check_invalid_executions(blob)
        assert await blob.get("x/a") == b"data"

    @async_test
    async def test_symlinks_are_not_followed(self, tmp_path: Path) -> None:
        (tmp_path / "outside").mkdir()
        (tmp_path / "outside" / "a").write_bytes(b"other")
        blob = make_blobs(tmp_path)
        await blob.put("x/a", b"data")
        await blob.put("y/a", b"data")
        link, home = (next(each for each in files(blob) if each.parent.name == name) for name in "xy")
        link.unlink()
        link.symlink_to(tmp_path / "outside" / "a")
        home.unlink()
        home.parent.rmdir()
        home.parent.symlink_to(tmp_path / "outside")
        for call in (blob.get("x/a"), blob.delete("y")):
            with pytest.raises(StoreUnavailableError):
                await call
        assert (tmp_path / "outside" / "a").read_bytes() == b"other"


class TestUnavailable:
    @async_test
    async def test_missing_folder_is_unavailable(self, tmp_path: Path) -> None:
        blob = make_blobs(tmp_path)
        await blob.put("x/a", b"data")
        blob.folder.rename(tmp_path / "elsewhere")
        for call in (blob.put("x/b", b""), blob.put("y/b", b""), blob.get("x/a"), blob.delete("x")):
            with pytest.raises(StoreUnavailableError, match="blobs"):
                await call
        (tmp_path / "elsewhere").rename(blob.folder)
        assert await blob.get("x/a") == b"data"
        await blob.put("z/a", b"data")
        assert await blob.get("z/a") == b"data"

    @async_test
    async def test_full_disk_is_unavailable_and_keeps_old_blob(self, tmp_path: Path) -> None:
        blob = make_blobs(tmp_path)

        def full(_: int) -> None:
            raise OSError(28, "No space left on device")

        await blob.put("x/a", b"old")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "fsync", full)
            with pytest.raises(StoreUnavailableError, match="No space left on device"):
                await blob.put("x/a", b"new")
        assert await blob.get("x/a") == b"old"
        assert len(files(blob)) == 1

    @async_test
    async def test_put_recreates_removed_subfolders(self, tmp_path: Path) -> None:
        blob = make_blobs(tmp_path)
        await blob.put("x/a", b"data")
        await blob.delete("x")
        for each in sorted(blob.folder.rglob("*"), reverse=True):
            each.rmdir()
        await blob.put("x/a", b"data")
        assert await blob.get("x/a") == b"data"


class TestConcurrency:
    @async_test
    async def test_concurrent_puts_and_delete(self, tmp_path: Path) -> None:
        """Every put that returned before the delete is removed, and no call fails."""
        one = make_blobs(tmp_path)
        other = FilesystemBlobs(one.folder)
        await asyncio.gather(*(one.put(f"x/{number}", b"data") for number in range(20)))
        await asyncio.gather(
            other.delete("x"), *(one.put(f"x/late{number}", b"data") for number in range(40))
        )
        assert [await one.get(f"x/{number}") for number in range(20)] == [None] * 20
        for number in range(40):
            assert await one.get(f"x/late{number}") in (None, b"data")
        await other.delete("x")
        assert files(one) == []

    @async_test
    async def test_concurrent_puts_of_one_key_store_one_value(self, tmp_path: Path) -> None:
        blob = make_blobs(tmp_path)
        values = [bytes([number]) * 50_000 for number in range(20)]
        await asyncio.gather(*(blob.put("x/a", value) for value in values))
        assert await blob.get("x/a") in values
        assert len(files(blob)) == 1
