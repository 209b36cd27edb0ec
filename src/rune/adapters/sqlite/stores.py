"""Blobs in the same file.

Opens the embedded backend.
"""

from __future__ import annotations

from pathlib import Path

from rune.adapters.sqlite.database import Database
from rune.adapters.sqlite.journal import EmbeddedJournal
from rune.adapters.sqlite.queue import EmbeddedQueue
from rune.adapters.sqlite.retention import EmbeddedRetention
from rune.adapters.sqlite.state import EmbeddedState, Plans
from rune.ports.clock import Clock


class EmbeddedBlob:
    """Bytes by key; the execution is the part of the key before the first slash."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def put(self, key: str, data: bytes) -> None:
        row = (key.split("/", 1)[0], key, data)
        await self._database.submit(
            lambda db: db.execute("INSERT OR REPLACE INTO blob VALUES (?, ?, ?)", row)
        )

    async def get(self, key: str) -> bytes | None:
        row = self._database.reader.execute(
            "SELECT data FROM blob WHERE execution = ? AND key = ?", (key.split("/", 1)[0], key)
        ).fetchone()
        return row[0] if row else None

    async def delete(self, execution: str) -> int:
        count: int = await self._database.submit(
            lambda db: db.execute("DELETE FROM blob WHERE execution = ?", (execution,)).rowcount
        )
        return count


class Embedded:
    """The adapters over one file."""

    def __init__(self, path: Path, clock: Clock, *, relaxed: bool = False) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.database = Database(path, relaxed=relaxed)
        self.journal = EmbeddedJournal(self.database)
        self.blob = EmbeddedBlob(self.database)
        self.queue = EmbeddedQueue()
        self.retention = EmbeddedRetention(self.database, self.journal)
        self._clock = clock

    def state(self, plans: Plans) -> EmbeddedState:
        """The state, which needs plans to fold."""
        return EmbeddedState(self.journal, plans, self._clock)
