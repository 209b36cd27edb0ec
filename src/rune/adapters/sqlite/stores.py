"""Opens the stores of the embedded backend, all of them in one SQLite file, and stores its blobs."""

from __future__ import annotations

from pathlib import Path

from rune.adapters.sqlite.database import Database
from rune.adapters.sqlite.journal import SqliteJournal
from rune.adapters.sqlite.owner import make_data_folder
from rune.adapters.sqlite.queue import SqliteQueue
from rune.adapters.sqlite.retention import SqliteRetention
from rune.adapters.sqlite.state import Plans, SqliteState
from rune.ports.clock import Clock


class SqliteStores:
    """The stores of the embedded backend over one file."""

    def __init__(self, path: Path, clock: Clock, *, relaxed: bool = False) -> None:
        make_data_folder(path)
        self.database = Database(path, relaxed=relaxed)
        self.journal = SqliteJournal(self.database)
        self.blob = SqliteBlobs(self.database)
        self.queue = SqliteQueue()
        self.retention = SqliteRetention(self.database, self.journal)
        self._clock = clock

    def state(self, plans: Plans) -> SqliteState:
        """Create the state. It needs plans to fold facts."""
        return SqliteState(self.journal, plans, self._clock)


class SqliteBlobs:
    """Implements the blob store in the database file."""

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
