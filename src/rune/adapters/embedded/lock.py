"""The owner of the file, held by a lock of the operating system that dies with the process."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from rune.ports.journal import StoreAway
from rune.ports.owner import InUse

NETWORK = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "fuse.sshfs", "afs", "ceph", "glusterfs", "lustre"}
)


def file_system(path: Path, mounts: str = "/proc/self/mounts") -> str:
    """The type of the file system that holds a path; empty where the system does not tell."""
    try:
        lines = Path(mounts).read_text().splitlines()
    except OSError:
        return ""
    target = str(path.resolve())
    best, kind = "", ""
    for line in lines:
        _, point, found, *_ = line.split(" ")
        inside = target == point or target.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, kind = point, found
    return kind


@contextmanager
def _reachable(database: Path) -> Iterator[None]:
    """A folder that cannot be made or written to is an outage, told by its name."""
    try:
        yield
    except (FileExistsError, NotADirectoryError) as error:
        raise StoreAway(f"cannot open {database}: {error.filename} is no folder") from error
    except OSError as error:
        raise StoreAway(f"cannot open {database}: {(error.strerror or str(error)).lower()}") from error


class Lock:
    """Exclusive while the block runs."""

    def __init__(self, database: Path) -> None:
        self._database = database
        self._path = database.with_suffix(database.suffix + ".lock")
        self._handle = -1

    def __enter__(self) -> Lock:
        with _reachable(self._database):
            self._database.parent.mkdir(parents=True, exist_ok=True)
        kind = file_system(self._database.parent)
        if kind in NETWORK:
            raise StoreAway(
                f"{self._database} is on a network file system ({kind}), where its locks cannot be trusted"
            )
        with _reachable(self._database):
            self._handle = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.read(self._handle, 20).decode(errors="replace").strip()
            os.close(self._handle)
            told = f" ({owner})" if owner.isdecimal() else ""
            raise InUse(f"{self._database} is in use by another process{told}") from None
        os.ftruncate(self._handle, 0)
        os.write(self._handle, f"{os.getpid()}\n".encode())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._handle)
