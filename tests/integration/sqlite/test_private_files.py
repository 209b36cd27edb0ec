"""Modes of the data folder and its files with a umask that lets other users read."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from rune import bootstrap
from rune.adapters.blobs.open_blob import open_blob
from rune.settings import Settings
from tests.support.in_process_cli import InProcessCli


@pytest.fixture(autouse=True)
def permissive_umask() -> Iterator[None]:
    old = os.umask(0o022)
    yield
    os.umask(old)


def modes(folder: Path) -> dict[str, int]:
    """The permission bits of a folder and of everything in it."""
    return {
        str(each.relative_to(folder.parent)): each.stat().st_mode & 0o777
        for each in (folder, *folder.rglob("*"))
    }


def modes_while_running(home: Path) -> dict[str, int]:
    async def run() -> dict[str, int]:
        async with bootstrap.running_engine(Settings(home=str(home))):
            return modes(home)

    return asyncio.run(run())


def test_running_engine_creates_private_files(tmp_path: Path) -> None:
    home = tmp_path / ".rune"

    assert modes_while_running(home) == {
        ".rune": 0o700,
        ".rune/rune.db": 0o600,
        ".rune/rune.db-wal": 0o600,
        ".rune/rune.db-shm": 0o600,
        ".rune/rune.db.lock": 0o600,
        ".rune/rune.sock": 0o600,
    }


@pytest.mark.parametrize("name", [".rune", "data"])
def test_folder_of_older_version_is_restricted_on_open(tmp_path: Path, name: str) -> None:
    home = tmp_path / name
    modes_while_running(home)
    home.chmod(0o755)
    (home / "rune.db").chmod(0o644)

    assert all(not mode & 0o077 for mode in modes_while_running(home).values())


def test_side_files_after_crash_of_older_version_are_restricted(tmp_path: Path) -> None:
    home = tmp_path / ".rune"
    modes_while_running(home)
    for suffix in ("-wal", "-shm"):
        (home / f"rune.db{suffix}").touch(mode=0o644)

    assert modes_while_running(home)[".rune/rune.db-wal"] == 0o600


def test_list_restricts_file_of_older_version(tmp_path: Path) -> None:
    home = tmp_path / ".rune"
    modes_while_running(home)
    (home / "rune.db").chmod(0o644)

    InProcessCli(home).output("list")

    assert (home / "rune.db").stat().st_mode & 0o777 == 0o600


def test_folder_with_files_of_others_keeps_its_mode(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir(mode=0o755)
    (project / "README.md").touch()

    found = modes_while_running(project)

    assert (found["project"], found["project/README.md"], found["project/rune.db"]) == (0o755, 0o644, 0o600)


def test_backup_restore_and_key_are_private(tmp_path: Path) -> None:
    home, copy = tmp_path / ".rune", tmp_path / "copy.db"
    rune = InProcessCli(home)
    options = ("--type", "bearer", "--host", "a.example")
    assert rune("credentials", "add", "shop", *options, stdin="s3cret-token\n").exit_code == 0
    rune.output("backup", str(copy))
    (home / "rune.db").chmod(0o644)
    rune.output("restore", str(copy), "--replace")

    found = modes(home)

    assert copy.stat().st_mode & 0o777 == 0o600
    assert {".rune/secret.key", ".rune/rune.db", ".rune/rune.db.replaced-1"} <= found.keys()
    assert found.pop(".rune") == 0o700
    assert set(found.values()) == {0o600}


def test_blob_folders_are_private_and_old_ones_are_restricted(tmp_path: Path) -> None:
    folder = tmp_path / "blobs"
    asyncio.run(open_blob(folder.as_uri()).put("x/a", b"data"))
    assert sorted(set(modes(folder).values())) == [0o600, 0o700]

    folder.chmod(0o755)
    open_blob(folder.as_uri())
    assert folder.stat().st_mode & 0o777 == 0o700
