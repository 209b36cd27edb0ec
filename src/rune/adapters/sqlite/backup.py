"""Copies of the file: taken while its owner goes on writing, and put back where nobody owns it.

What can be found out about the file and its place without taking part.
"""

from __future__ import annotations

import os
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from rune.adapters.sqlite.database import STEPS
from rune.adapters.sqlite.owner import NETWORK, Lock, file_system
from rune.adapters.sqlite.readonly import ReadOnlyDatabase
from rune.errors import RuneError
from rune.ports.inspection import BackupResult, FileInspection
from rune.ports.journal import NewerFormatError, StoreUnavailableError

SIDE_FILES = ("-wal", "-shm")
"""What SQLite keeps beside a file; the first holds writes that are not in the file yet."""


class InvalidBackupError(RuneError):
    """A copy that cannot be made, or not be put back."""

    code = "BAD_COPY"


def create_backup(database: Path, target: Path) -> BackupResult:
    """Everything that was acknowledged until now, as one file. It is there whole or not at all."""
    if target.exists():
        raise InvalidBackupError(f"{target} is already there; a copy overwrites nothing")
    source = ReadOnlyDatabase(database)
    try:
        with _remove(target), _beside(target) as part:
            found = _copy(source.reader, part)
            os.rename(part, target)
            _fsync_file(target.parent)
    finally:
        source.close()
    return found


def restore_backup(copy: Path, database: Path, *, replace: bool) -> tuple[BackupResult, Path | None]:
    """Make a copy the file. What was there is refused, or set aside; where to is the second answer."""
    if not copy.is_file():
        raise InvalidBackupError(f"{copy}: there is no such file")
    with Lock(database), _remove(database), _beside(database) as part:
        there = database.exists() and database.stat().st_size > 0
        if there and not replace:
            raise InvalidBackupError(f"{database} is already there; it is set aside only with --replace")
        with closing(_opened(copy)) as source:
            found = _copy(source, part)
        aside = _set_aside(database) if there else None
        _drop(database)  # crash here: both are there, under names that tell which is which
        os.rename(part, database)
        _fsync_file(database.parent)
    return found, aside


def _opened(copy: Path) -> sqlite3.Connection:
    """A copy as it was made by `take`, or by hand of a file that nobody owned."""
    try:
        source = sqlite3.connect(f"{copy.resolve().as_uri()}?mode=ro", uri=True)
        (version,) = source.execute("PRAGMA user_version").fetchone()
        tables = {name for (name,) in source.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    except sqlite3.Error as error:
        raise InvalidBackupError(f"{copy} is no copy of a file of Rune: {error}") from None
    if version > len(STEPS):
        source.close()
        raise NewerFormatError(f"{copy} has schema version {version}, this Rune knows up to {len(STEPS)}")
    if version == 0 or not {"execution", "fact"} <= tables:
        source.close()
        raise InvalidBackupError(f"{copy} is no copy of a file of Rune")
    return source


def _copy(source: sqlite3.Connection, part: Path) -> BackupResult:
    """In one go: a copy in pieces would begin anew with every write of the owner."""
    with closing(sqlite3.connect(part, isolation_level=None)) as made:
        source.backup(made)
        made.execute("PRAGMA journal_mode = DELETE")  # one file, with nothing beside it
        (verdict,) = made.execute("PRAGMA integrity_check(1)").fetchone()
        if verdict != "ok":
            raise InvalidBackupError(f"the copy would be damaged: {verdict}")
        found = BackupResult(
            bytes=part.stat().st_size,
            schema=_number(made, "PRAGMA user_version"),
            executions=_number(made, "SELECT count(*) FROM execution"),
            running=_number(made, "SELECT count(*) FROM execution WHERE ended_at IS NULL"),
            credentials=_number(made, "SELECT count(*) FROM credential"),
        )
    _fsync_file(part)
    return found


def _number(made: sqlite3.Connection, statement: str) -> int:
    return int(made.execute(statement).fetchone()[0])


@contextmanager
def _beside(target: Path) -> Iterator[Path]:
    """A file in the same folder, which only its owner reads; gone if it was not moved."""
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}-")
    os.close(handle)
    part = Path(name)
    try:
        yield part
    finally:
        part.unlink(missing_ok=True)
        _drop(part)


@contextmanager
def _remove(target: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, sqlite3.Error) as error:
        said = (error.strerror or str(error)).lower() if isinstance(error, OSError) else error
        raise StoreUnavailableError(f"{target}: {said}") from error


def _set_aside(database: Path) -> Path:
    """The file with what is beside it. What holds the last writes goes first: it must not meet another file."""
    number = 1
    while (aside := database.with_name(f"{database.name}.replaced-{number}")).exists():
        number += 1
    for each in (*SIDE_FILES, ""):
        with suppress(FileNotFoundError):
            os.rename(database.with_name(database.name + each), aside.with_name(aside.name + each))
    return aside


def _drop(database: Path) -> None:
    for each in SIDE_FILES:
        database.with_name(database.name + each).unlink(missing_ok=True)


def _fsync_file(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


SYNCS = 12
CHECKED_BYTES = 256 * 1024 * 1024


def inspect(database: Path) -> FileInspection:
    """Look, and write nothing but one small file that is gone at once."""
    folder = _nearest(database.parent)
    room = os.statvfs(folder)
    kind = file_system(folder)
    owned, owner = lock_owner(database)
    exists = database.is_file()
    schema, damage, running = _read(database) if exists else (None, "", 0)
    return FileInspection(
        database=str(database),
        exists=exists,
        file_system=kind,
        network=kind in NETWORK,
        writable=folder.is_dir() and os.access(folder, os.W_OK),
        free_bytes=room.f_bavail * room.f_frsize,
        file_bytes=_size(database),
        sqlite=sqlite3.sqlite_version,
        schema=schema,
        known_schema=len(STEPS),
        damage=damage,
        owned=owned,
        owner=owner,
        sync_ms=_sync_mode(folder),
        running=running,
    )


def lock_owner(database: Path, locks: str = "/proc/locks") -> tuple[bool, int | None]:
    """Whether somebody holds the file, and who. Read from the system's table: trying the lock could make a
    process that starts this moment believe that the file is taken."""
    path = database.with_suffix(database.suffix + ".lock")
    try:
        inode = path.stat().st_ino
        held = any(
            fields[1] == "FLOCK" and fields[5].rpartition(":")[2] == str(inode)
            for line in Path(locks).read_text().splitlines()
            if len(fields := line.split()) > 5
        )
        return held, int(path.read_text() or 0) or None if held else None
    except (OSError, ValueError):
        return False, None


def _nearest(folder: Path) -> Path:
    folder = folder.resolve()
    while not folder.exists():
        folder = folder.parent
    return folder


def _size(database: Path) -> int:
    parts = (database, database.with_name(database.name + "-wal"))
    return sum(part.stat().st_size for part in parts if part.exists())


def _read(database: Path) -> tuple[int | None, str, int]:
    try:
        connection = sqlite3.connect(f"{database.resolve().as_uri()}?mode=ro", uri=True)
        try:
            (schema,) = connection.execute("PRAGMA user_version").fetchone()
            if schema == 0 or schema > len(STEPS):
                return schema, "", 0
            damage = ""
            if _size(database) <= CHECKED_BYTES:
                (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
                damage = "" if verdict == "ok" else str(verdict)
            (running,) = connection.execute(
                "SELECT count(*) FROM execution WHERE ended_at IS NULL"
            ).fetchone()
            return schema, damage, running
        finally:
            connection.close()
    except sqlite3.Error as error:
        return None, str(error), 0


def _sync_mode(folder: Path) -> float | None:
    took: list[float] = []
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".rune-") as file:
            for _ in range(SYNCS):
                began = time.perf_counter()
                file.write(b"\0" * 4096)
                file.flush()
                os.fsync(file.fileno())
                took.append(time.perf_counter() - began)
    except OSError:
        return None
    return round(sorted(took)[SYNCS // 2] * 1000, 3)
