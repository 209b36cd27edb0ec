"""Permissions of the data on a machine: folders 0700 and files 0600, whatever the umask is.

A folder or file that exists with more permissions, such as one written by an older version, loses them when it is
opened by its owner. A folder that also holds files of other programs keeps its mode; the files in it are private.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

FOLDER_MODE = 0o700
FILE_MODE = 0o600


def make_private_folder(folder: Path, holds: Callable[[str], bool]) -> None:
    """Create a folder, or restrict an existing one to its owner if `holds` accepts every name in it."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        folder.mkdir(mode=FOLDER_MODE)
    except FileExistsError:
        if not folder.is_dir():
            raise
        _restrict_folder(folder, holds)


def _restrict_folder(folder: Path, holds: Callable[[str], bool]) -> None:
    with suppress(OSError):
        found = folder.stat()
        # The sticky bit marks a folder that several users share.
        if not _is_exposed(found) or found.st_mode & stat.S_ISVTX:
            return
        with os.scandir(folder) as entries:
            if all(holds(entry.name) for entry in entries):
                folder.chmod(FOLDER_MODE)


def create_private_file(path: Path, content: bytes) -> None:
    """Create a file that only its owner can read, and that nobody ever sees without its content. An existing file is
    restricted to its owner."""
    if path.exists():
        restrict_file(path)
        return
    new = path.with_name(f".{path.name}.{os.getpid()}")
    with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, FILE_MODE), "wb") as file:
        file.write(content)
    try:
        os.link(new, path)
    except FileExistsError:
        restrict_file(path)
    finally:
        new.unlink()


def restrict_file(path: Path) -> None:
    """Restrict an existing file of this user to its owner. A read-only file system is left as it is."""
    with suppress(OSError):
        if _is_exposed(path.stat()):
            path.chmod(FILE_MODE)


def _is_exposed(found: os.stat_result) -> bool:
    return found.st_uid == os.geteuid() and bool(found.st_mode & 0o077)
