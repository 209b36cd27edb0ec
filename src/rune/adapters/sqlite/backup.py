"""Backup, restore and inspection of the database file.

A backup can be taken while the owner writes; a restore requires that no process owns the file.
"""

from __future__ import annotations

import os
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from rune.adapters.private_files import restrict_file
from rune.adapters.sqlite.block_marks import FileBlockMarks
from rune.adapters.sqlite.connection import connect
from rune.adapters.sqlite.database import SIDE_FILES, check_not_empty, damage_error, is_damage
from rune.adapters.sqlite.owner import NETWORK_FILE_SYSTEMS, Lock, file_system
from rune.adapters.sqlite.schema import MIGRATIONS
from rune.adapters.sqlite.stores import ReadOnlyDatabase
from rune.errors import RuneError
from rune.ports.inspection import BackupResult, FileInspection
from rune.ports.journal import NewerFormatError, StoreDamagedError, StoreUnavailableError

FSYNC_SAMPLES = 12
MAX_CHECKED_BYTES = 256 * 1024 * 1024
"""Larger files are not checked for damage, because that takes too long."""


class InvalidBackupError(RuneError):
    """A backup cannot be created or restored."""

    code = "BAD_COPY"


def create_backup(database: Path, target: Path) -> BackupResult:
    """Write a backup with every acknowledged write to a new file. The file appears complete or not at all."""
    if target.exists():
        raise InvalidBackupError(f"{target} already exists; a backup does not overwrite files")
    source = ReadOnlyDatabase(database)
    try:
        with _errors_translated(target), _temporary_file(target) as part:
            with _damage_reported(database):
                found = _copy(source.reader, part)
            os.rename(part, target)
            _fsync(target.parent)
    finally:
        source.close()
    return found


def restore_backup(copy: Path, database: Path, *, replace: bool) -> tuple[BackupResult, Path | None]:
    """Replace the database by a backup. An existing database is an error, or with `replace` renamed; its new path is
    returned."""
    if not copy.is_file():
        raise InvalidBackupError(f"{copy}: no such file")
    with Lock(database), _errors_translated(database), _temporary_file(database) as part:
        exists = database.exists() and database.stat().st_size > 0
        if exists and not replace:
            raise InvalidBackupError(f"{database} already exists; use --replace to rename it")
        with closing(_open_backup(copy)) as source:
            found = _copy(source, part)
        aside = _set_aside(database) if exists else None
        # crash here: the old database has its `.replaced` name, the backup is untouched; restoring again succeeds
        _remove_side_files(database)
        os.rename(part, database)
        _fsync(database.parent)
    return found, aside


def _open_backup(copy: Path) -> sqlite3.Connection:
    """Open a backup, which may also be a plain copy of a file that no process owned."""
    try:
        source = connect(f"{Path(os.path.realpath(copy)).as_uri()}?mode=ro", uri=True)
        (version,) = source.execute("PRAGMA user_version").fetchone()
        tables = {name for (name,) in source.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    except sqlite3.Error as error:
        raise InvalidBackupError(f"{copy} is not a backup of a Rune database: {error}") from None
    if version > len(MIGRATIONS):
        source.close()
        raise NewerFormatError(
            f"{copy} has schema version {version}; this version of Rune supports up to {len(MIGRATIONS)}"
        )
    if version == 0 or not {"execution", "fact"} <= tables:
        source.close()
        raise InvalidBackupError(f"{copy} is not a backup of a Rune database")
    return source


def _copy(source: sqlite3.Connection, part: Path) -> BackupResult:
    """Copy a database in one step: SQLite restarts a stepwise copy with every write of the owner."""
    with closing(connect(str(part), isolation_level=None)) as target:
        source.backup(target)
        target.execute("PRAGMA journal_mode = DELETE")  # a single file, without a write-ahead log
        (verdict,) = target.execute("PRAGMA integrity_check(1)").fetchone()
        if verdict != "ok":
            raise InvalidBackupError(f"the backup would be damaged: {verdict}")
        found = BackupResult(
            bytes=part.stat().st_size,
            schema=_fetch_int(target, "PRAGMA user_version"),
            executions=_fetch_int(target, "SELECT count(*) FROM execution"),
            running=_fetch_int(target, "SELECT count(*) FROM execution WHERE ended_at IS NULL"),
            credentials=_fetch_int(target, "SELECT count(*) FROM credential"),
        )
    _fsync(part)
    return found


def _fetch_int(db: sqlite3.Connection, statement: str) -> int:
    return int(db.execute(statement).fetchone()[0])


@contextmanager
def _temporary_file(target: Path) -> Iterator[Path]:
    """Yield a private file in the folder of the target; it is deleted afterwards unless it was renamed."""
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}-")
    os.close(handle)
    part = Path(name)
    try:
        yield part
    finally:
        part.unlink(missing_ok=True)
        _remove_side_files(part)


@contextmanager
def _errors_translated(target: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, sqlite3.Error) as error:
        reason = (error.strerror or str(error)).lower() if isinstance(error, OSError) else error
        raise StoreUnavailableError(f"{target}: {reason}") from error


@contextmanager
def _damage_reported(database: Path) -> Iterator[None]:
    """Attribute damage that is found while the database is copied to the database, not to the copy."""
    try:
        yield
    except InvalidBackupError as error:
        raise damage_error(database, error) from error
    except sqlite3.Error as error:
        if not is_damage(error):
            raise
        raise damage_error(database, error) from error


def _set_aside(database: Path) -> Path:
    """Rename the database with its side files. The write-ahead log comes first, because SQLite would apply it to
    whatever database has the old name."""
    number = 1
    while (aside := database.with_name(f"{database.name}.replaced-{number}")).exists():
        number += 1
    for each in (*SIDE_FILES, ""):
        with suppress(FileNotFoundError):
            os.rename(database.with_name(database.name + each), aside.with_name(aside.name + each))
            restrict_file(aside.with_name(aside.name + each))
    return aside


def _remove_side_files(database: Path) -> None:
    for each in SIDE_FILES:
        database.with_name(database.name + each).unlink(missing_ok=True)


def _fsync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def inspect(database: Path) -> FileInspection:
    """Inspect the database file and its folder. Writes only a small temporary file, to measure fsync."""
    folder = _existing_parent(database.parent)
    room = os.statvfs(folder)
    kind = file_system(folder)
    owned, owner = lock_owner(database)
    exists = database.is_file()
    schema, damage, running = _check_file(database) if exists else (None, "", 0)
    return FileInspection(
        database=str(database),
        exists=exists,
        file_system=kind,
        network=kind in NETWORK_FILE_SYSTEMS,
        writable=folder.is_dir() and os.access(folder, os.W_OK),
        free_bytes=room.f_bavail * room.f_frsize,
        file_bytes=_total_bytes(database),
        sqlite=sqlite3.sqlite_version,
        schema=schema,
        known_schema=len(MIGRATIONS),
        damage=damage,
        owned=owned,
        owner=owner,
        sync_ms=_measure_fsync_ms(folder),
        running=running,
        quarantined=tuple(FileBlockMarks(database).quarantined()),
    )


def lock_owner(database: Path, locks: str = "/proc/locks") -> tuple[bool, int | None]:
    """Return whether a process owns the file, and its id.

    Reads the lock table of the system: trying the lock could make another process that starts now fail with
    FileInUseError.
    """
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


def _existing_parent(folder: Path) -> Path:
    folder = Path(os.path.realpath(folder))
    while not folder.exists():
        folder = folder.parent
    return folder


def _total_bytes(database: Path) -> int:
    parts = (database, database.with_name(database.name + "-wal"))
    return sum(part.stat().st_size for part in parts if part.exists())


def _check_file(database: Path) -> tuple[int | None, str, int]:
    try:
        check_not_empty(database)
    except StoreDamagedError:
        return None, "it is empty: it has lost its content", 0
    try:
        connection = connect(f"{Path(os.path.realpath(database)).as_uri()}?mode=ro", uri=True)
        try:
            (schema,) = connection.execute("PRAGMA user_version").fetchone()
            if schema == 0 or schema > len(MIGRATIONS):
                return schema, "", 0
            damage = ""
            if _total_bytes(database) <= MAX_CHECKED_BYTES:
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


def _measure_fsync_ms(folder: Path) -> float | None:
    took: list[float] = []
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".rune-") as file:
            for _ in range(FSYNC_SAMPLES):
                began = time.perf_counter()
                file.write(b"\0" * 4096)
                file.flush()
                os.fsync(file.fileno())
                took.append(time.perf_counter() - began)
    except OSError:
        return None
    return round(sorted(took)[FSYNC_SAMPLES // 2] * 1000, 3)
