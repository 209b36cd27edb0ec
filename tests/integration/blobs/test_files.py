"""Blobs as files: whole or not there, in their folder and nowhere else."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rune.adapters.blobs.filesystem import FilesystemBlobs
from rune.ports.journal import StoreUnavailableError
from tests.contract.suites.scenario import scenario
from tests.integration.blobs.hostile import HOSTILE, keep_hostile, refuse_no_executions, refuse_no_keys

DIES = """
import asyncio, os, sys
from pathlib import Path
from rune.adapters.blobs.filesystem import FilesystemBlobs
os.replace = lambda *names: os._exit(9)
asyncio.run(FilesystemBlobs(Path(sys.argv[1])).put("x/a@/", b"new" * 100_000))
"""


def made(folder: Path) -> FilesystemBlobs:
    blobs = folder / "blobs"
    blobs.mkdir()
    return FilesystemBlobs(blobs)


def below(folder: Path) -> set[Path]:
    return {each.relative_to(folder) for each in folder.rglob("*")}


def files(blob: FilesystemBlobs) -> list[Path]:
    return [each for each in blob.folder.rglob("*") if each.is_file()]


def die_before_the_rename(blob: FilesystemBlobs) -> None:
    there = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", DIES, str(blob.folder)], env=there, check=False)
    assert done.returncode == 9


class TestCrash:
    @scenario
    async def test_a_blob_that_was_not_there_is_still_not_there(self, folder: Path) -> None:
        blob = made(folder)
        die_before_the_rename(blob)
        assert len(files(blob)) == 1
        assert await blob.get("x/a@/") is None
        await blob.put("x/a@/", b"again")
        assert await blob.get("x/a@/") == b"again"

    @scenario
    async def test_a_blob_that_was_there_is_as_it_was(self, folder: Path) -> None:
        blob = made(folder)
        await blob.put("x/a@/", b"old")
        die_before_the_rename(blob)
        assert await blob.get("x/a@/") == b"old"

    @scenario
    async def test_what_was_left_over_goes_with_its_execution(self, folder: Path) -> None:
        blob = made(folder)
        await blob.put("x/a@/", b"old")
        die_before_the_rename(blob)
        assert await blob.delete("x") == 1
        assert files(blob) == []

    @scenario
    async def test_a_blob_is_on_disk_before_it_has_its_name_and_its_name_before_the_answer(
        self, folder: Path
    ) -> None:
        blob = made(folder)
        seen: list[str] = []
        sync, rename = os.fsync, os.replace

        def syncing(descriptor: int) -> None:
            seen.append(f"sync {Path(os.readlink(f'/proc/self/fd/{descriptor}')).relative_to(blob.folder)}")
            sync(descriptor)

        def renaming(old: Path, new: Path) -> None:
            seen.append(f"rename {old.relative_to(blob.folder)} {new.relative_to(blob.folder)}")
            rename(old, new)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "fsync", syncing)
            patch.setattr(os, "replace", renaming)
            await blob.put("x/a@/", b"data")
        (place,) = (each.relative_to(blob.folder) for each in files(blob))
        top, middle, home = place.parents[2], place.parents[1], place.parents[0]
        passing = seen[3].removeprefix("sync ")
        assert seen == [
            "sync .",
            f"sync {top}",
            f"sync {middle}",
            f"sync {passing}",
            f"rename {passing} {place}",
            f"sync {home}",
        ]


class TestHostile:
    @scenario
    async def test_nothing_escapes_the_folder(self, folder: Path) -> None:
        (folder / "outside").mkdir()
        (folder / "outside" / "a").write_bytes(b"mine")
        blob = made(folder)
        await keep_hostile(blob)
        assert {each.parts[0] for each in below(folder)} == {"outside", "blobs"}
        assert (folder / "outside" / "a").read_bytes() == b"mine"
        assert await blob.delete("..") == 2
        assert await blob.delete(".") == 1
        assert (folder / "outside" / "a").read_bytes() == b"mine"
        assert len(files(blob)) == len(HOSTILE) - 3

    @scenario
    async def test_what_is_no_key_is_refused_and_never_found(self, folder: Path) -> None:
        blob = made(folder)
        await refuse_no_keys(blob)
        assert below(blob.folder) == set()

    @scenario
    async def test_no_id_stands_for_all_executions(self, folder: Path) -> None:
        blob = made(folder)
        await blob.put("x/a", b"data")
        await refuse_no_executions(blob)
        assert await blob.get("x/a") == b"data"

    @scenario
    async def test_a_link_is_not_followed(self, folder: Path) -> None:
        (folder / "outside").mkdir()
        (folder / "outside" / "a").write_bytes(b"mine")
        blob = made(folder)
        await blob.put("x/a", b"data")
        await blob.put("y/a", b"data")
        link, home = (next(each for each in files(blob) if each.parent.name == name) for name in "xy")
        link.unlink()
        link.symlink_to(folder / "outside" / "a")
        home.unlink()
        home.parent.rmdir()
        home.parent.symlink_to(folder / "outside")
        for act in (blob.get("x/a"), blob.delete("y")):
            with pytest.raises(StoreUnavailableError):
                await act
        assert (folder / "outside" / "a").read_bytes() == b"mine"


class TestAway:
    @scenario
    async def test_a_folder_that_is_gone_is_away_and_its_blobs_are_not_missing(self, folder: Path) -> None:
        blob = made(folder)
        await blob.put("x/a", b"data")
        blob.folder.rename(folder / "elsewhere")
        for act in (blob.put("x/b", b""), blob.put("y/b", b""), blob.get("x/a"), blob.delete("x")):
            with pytest.raises(StoreUnavailableError, match="blobs"):
                await act
        (folder / "elsewhere").rename(blob.folder)
        assert await blob.get("x/a") == b"data"
        await blob.put("z/a", b"data")
        assert await blob.get("z/a") == b"data"

    @scenario
    async def test_a_full_disk_is_away_and_leaves_nothing_half_written(self, folder: Path) -> None:
        blob = made(folder)

        def full(_: int) -> None:
            raise OSError(28, "No space left on device")

        await blob.put("x/a", b"old")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "fsync", full)
            with pytest.raises(StoreUnavailableError, match="No space left on device"):
                await blob.put("x/a", b"new")
        assert await blob.get("x/a") == b"old"
        assert len(files(blob)) == 1

    @scenario
    async def test_folders_of_the_fan_out_may_be_tidied_up(self, folder: Path) -> None:
        blob = made(folder)
        await blob.put("x/a", b"data")
        await blob.delete("x")
        for each in sorted(blob.folder.rglob("*"), reverse=True):
            each.rmdir()
        await blob.put("x/a", b"data")
        assert await blob.get("x/a") == b"data"


class TestTogether:
    @scenario
    async def test_writers_and_a_removal_at_once(self, folder: Path) -> None:
        """Every put that was answered before the removal began is gone, and nobody fails."""
        one = made(folder)
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

    @scenario
    async def test_the_same_key_from_many_sides_is_one_of_them(self, folder: Path) -> None:
        blob = made(folder)
        values = [bytes([number]) * 50_000 for number in range(20)]
        await asyncio.gather(*(blob.put("x/a", value) for value in values))
        assert await blob.get("x/a") in values
        assert len(files(blob)) == 1
