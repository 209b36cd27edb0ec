"""Blobs as files, in one folder per execution.

A blob is written to a temporary file in its folder and renamed, so a reader finds all of it or nothing. A process that
crashes leaves at most a temporary file, which is deleted with its execution.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from rune.adapters.private_files import FILE_MODE, FOLDER_MODE
from rune.ports.journal import StoreUnavailableError

if TYPE_CHECKING:
    pass
from rune.adapters.blobs.keys import BlobKey, InvalidBlobKeyError, execution_folder, fan_out, parse_blob_key

T = TypeVar("T")
TEMPORARY_PREFIX = "."
"""Prefix of temporary files. No blob has a name that starts with it."""

PROBE_BYTES = 64 * 1024
"""How much `check_writable` writes."""

MAX_WRITE_TRIES = 5
"""How often a write or a removal is tried while another process removes or fills the same folder."""


class FilesystemBlobs:
    """Bytes by key, in a folder that any number of processes may share."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._durable: set[Path] = set()  # fan-out folders whose parent was synced

    async def put(self, key: str, data: bytes) -> None:
        name = parse_blob_key(key)
        await self._in_thread(lambda: self._write(name, data))

    async def get(self, key: str) -> bytes | None:
        try:
            name = parse_blob_key(key)
        except InvalidBlobKeyError:
            return None
        return await self._in_thread(lambda: self._read(name))

    async def delete(self, execution: str) -> int:
        name = execution_folder(execution)
        return await self._in_thread(lambda: self._remove(name))

    async def check_writable(self) -> None:
        """Raise StoreUnavailableError if the folder cannot be written, such as on a full disk."""
        await self._in_thread(self._write_probe)

    def _write_probe(self) -> None:
        # Without a name where the file system supports that, so that a killed process leaves nothing.
        with tempfile.TemporaryFile(dir=self.folder, prefix=TEMPORARY_PREFIX, buffering=0) as file:
            file.write(bytes(PROBE_BYTES))

    async def _in_thread(self, work: Callable[[], T]) -> T:
        try:
            return await asyncio.to_thread(work)
        except OSError as error:
            reason = error.strerror or str(error)
            raise StoreUnavailableError(f"the blob folder {self.folder} cannot be used: {reason}") from error

    def _folder_of(self, execution: str) -> Path:
        return self.folder.joinpath(*fan_out(execution), execution)

    def _write(self, name: BlobKey, data: bytes) -> None:
        home = self._folder_of(name.execution)
        for tries_left in reversed(range(MAX_WRITE_TRIES)):
            try:
                self._make_folders(home)
                _write_atomically(home, name.blob, data)
            except FileNotFoundError:  # another process removed the folder of the execution
                self._durable.clear()
                if not tries_left or not self.folder.is_dir():
                    raise
            else:
                _fsync_folder(home)
                return

    def _make_folders(self, home: Path) -> None:
        """Create the folder of an execution and its parents, and make each of them durable.

        A process that finds a folder cannot know whether the process that created it has already synced the parent,
        so every process syncs it. Fan-out folders are never removed, so syncing once is enough for them.
        """
        for each in (home.parent.parent, home.parent, home):
            if each in self._durable:
                continue
            with suppress(FileExistsError):
                each.mkdir(mode=FOLDER_MODE)
            _fsync_folder(each.parent)
            if each is not home:
                self._durable.add(each)

    def _read(self, name: BlobKey) -> bytes | None:
        try:
            with open(self._folder_of(name.execution) / name.blob, "rb", opener=_open_private) as file:
                return file.read()
        except FileNotFoundError:
            # Without the root folder, such as on an unmounted volume, the blob is unreachable, not missing.
            if not self.folder.is_dir():
                raise
            return None

    def _remove(self, execution: str) -> int:
        """Remove files until the folder is empty: another process may still be writing."""
        home = self._folder_of(execution)
        count = 0
        for _ in range(MAX_WRITE_TRIES):
            try:
                count += _remove_files(home)
            except FileNotFoundError:
                if not self.folder.is_dir():
                    raise
                return count
            try:
                home.rmdir()
            except OSError:  # not empty: try again
                continue
            _fsync_folder(home.parent)
            break
        return count


def _write_atomically(home: Path, name: str, data: bytes) -> None:
    temporary = home / f"{TEMPORARY_PREFIX}{secrets.token_hex(12)}"
    try:
        with open(temporary, "xb", opener=_open_private) as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        # crash here: the blob does not exist under its name; the temporary file is deleted with the execution
        os.replace(temporary, home / name)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise


def _remove_files(home: Path) -> int:
    """Remove the files of a folder and return how many were blobs. A symbolic link in its place is an error."""
    folder = os.open(home, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    count = 0
    try:
        for entry in os.listdir(folder):
            with suppress(FileNotFoundError):
                os.unlink(entry, dir_fd=folder)
                count += not entry.startswith(TEMPORARY_PREFIX)
    finally:
        os.close(folder)
    return count


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, FILE_MODE)


def _fsync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
