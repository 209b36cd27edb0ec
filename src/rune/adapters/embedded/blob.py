"""Blobs in the same file."""

from __future__ import annotations

from rune.adapters.embedded.database import Database


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
