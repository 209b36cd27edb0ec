"""What can be found out about the file and its place without taking part."""

from __future__ import annotations

import os
import sqlite3
import tempfile
import time
from pathlib import Path

from rune.adapters.embedded.lock import NETWORK, file_system
from rune.adapters.embedded.migrations import STEPS
from rune.ports.inspection import Inspection

SYNCS = 12
CHECKED_BYTES = 256 * 1024 * 1024


def inspect(database: Path) -> Inspection:
    """Look, and write nothing but one small file that is gone at once."""
    folder = _nearest(database.parent)
    room = os.statvfs(folder)
    kind = file_system(folder)
    owned, owner = lock_owner(database)
    exists = database.is_file()
    schema, damage, running = _read(database) if exists else (None, "", 0)
    return Inspection(
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
        sync_ms=_sync(folder),
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


def _sync(folder: Path) -> float | None:
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
