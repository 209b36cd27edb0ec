"""Blobs in the same database."""

from __future__ import annotations

from rune.adapters.postgres.database import Database
from rune.adapters.postgres.sql import query


class PostgresBlob:
    """Bytes by key; the execution is the part of the key before the first slash."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def put(self, key: str, data: bytes) -> None:
        await self._database.fetch(query("blob_put"), key.partition("/")[0], key, data)

    async def get(self, key: str) -> bytes | None:
        row = await self._database.find(query("blob_get"), key.partition("/")[0], key)
        return row["data"] if row is not None else None

    async def delete(self, execution: str) -> int:
        row = await self._database.once(query("blob_delete"), execution)
        return int(row["count"]) if row is not None else 0
