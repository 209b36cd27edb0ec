"""Blobs as files: one folder an execution, each file whole or not there.

A file is written under a passing name in its own folder, so a process that dies leaves at most a file that nobody
reads, and that goes with its execution.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from rune.adapters.blobs.keys import BlobKey, InvalidBlobKeyError, execution_folder, fan_out, parse_blob_key
from rune.ports.journal import StoreUnavailableError

T = TypeVar("T")
TEMPORARY_PREFIX = "."
"""What a file begins with until it is whole; no blob's name does."""

MAX_TRIES = 5
"""How often a folder may vanish under whoever writes into it."""

_OWNER_ONLY = 0o600


class FilesystemBlobs:
    """Bytes by key, in a folder that any number of processes may share."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._durable: set[Path] = set()

    async def put(self, key: str, data: bytes) -> None:
        name = parse_blob_key(key)
        await self._threaded(lambda: self._write(name, data))

    async def get(self, key: str) -> bytes | None:
        try:
            name = parse_blob_key(key)
        except InvalidBlobKeyError:
            return None
        return await self._threaded(lambda: self._read(name))

    async def delete(self, execution: str) -> int:
        name = execution_folder(execution)
        return await self._threaded(lambda: self._remove(name))

    async def _threaded(self, act: Callable[[], T]) -> T:
        try:
            return await asyncio.to_thread(act)
        except OSError as error:
            said = error.strerror or str(error)
            raise StoreUnavailableError(
                f"the folder of the blobs, {self.folder}, cannot be used: {said}"
            ) from error

    def _home(self, execution: str) -> Path:
        return self.folder.joinpath(*fan_out(execution), execution)

    def _write(self, name: BlobKey, data: bytes) -> None:
        home = self._home(name.execution)
        for tries_left in reversed(range(MAX_TRIES)):
            try:
                self._make(home)
                _write_whole(home, name.blob, data)
            except FileNotFoundError:  # the execution's folder was removed meanwhile
                self._durable.clear()
                if not tries_left or not self.folder.is_dir():
                    raise
            else:
                _sync(home)
                return

    def _make(self, home: Path) -> None:
        """The folders down to an execution's, each of them durable.

        Who finds a folder cannot tell whether the one who made it has come to sync the folder above, so it is synced
        by everybody. Those of the fan-out are never removed, and once is enough for them.
        """
        for each in (home.parent.parent, home.parent, home):
            if each in self._durable:
                continue
            with suppress(FileExistsError):
                each.mkdir()
            _sync(each.parent)
            if each is not home:
                self._durable.add(each)

    def _read(self, name: BlobKey) -> bytes | None:
        try:
            with open(self._home(name.execution) / name.blob, "rb", opener=_opener) as file:
                return file.read()
        except FileNotFoundError:
            if not self.folder.is_dir():  # what is kept there is not lost, it is out of reach
                raise
            return None

    def _remove(self, execution: str) -> int:
        """Removes files until the folder is empty: somebody may still be writing."""
        home = self._home(execution)
        count = 0
        for _ in range(MAX_TRIES):
            try:
                count += _empty(home)
            except FileNotFoundError:
                if not self.folder.is_dir():
                    raise
                return count
            try:
                home.rmdir()
            except OSError:  # not empty: once more
                continue
            _sync(home.parent)
            break
        return count


def _write_whole(home: Path, name: str, data: bytes) -> None:
    """The crash points: before the rename nothing is there under the name, after it everything is."""
    passing = home / f"{TEMPORARY_PREFIX}{secrets.token_hex(12)}"
    try:
        with open(passing, "xb", opener=_opener) as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(passing, home / name)
    except BaseException:
        with suppress(OSError):
            passing.unlink()
        raise


def _empty(home: Path) -> int:
    """Remove the files of a folder, which has to be one and not lead elsewhere; answers how many were blobs."""
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


def _opener(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, _OWNER_ONLY)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
