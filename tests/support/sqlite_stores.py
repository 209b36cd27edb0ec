"""SQLite stores opened in a test's folder."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from rune.adapters.sqlite.stores import SqliteStores
from rune.ports.clock import Clock
from rune.testing.harness import VirtualClock


@asynccontextmanager
async def sqlite_stores(folder: Path, clock: Clock | None = None) -> AsyncIterator[SqliteStores]:
    """Open the stores of `folder / "rune.db"`."""
    stores = SqliteStores(folder / "rune.db", clock or VirtualClock())
    stores.database.start()
    try:
        yield stores
    finally:
        await stores.journal.close()


def copy_sqlite_files(folder: Path) -> Path:
    """Copy what another process would find if this one died now; return the new folder."""
    copy = folder / "left"
    copy.mkdir()
    for name in ("rune.db", "rune.db-wal"):
        if (folder / name).exists():
            shutil.copyfile(folder / name, copy / name)
    return copy
