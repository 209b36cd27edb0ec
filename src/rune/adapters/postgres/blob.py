"""Blobs in the same database."""

from __future__ import annotations

import asyncio

from rune.adapters.postgres.database import Database
from rune.adapters.postgres.sql import query


class PostgresBlob:
    """Bytes by key; the execution is the part of the key before the first slash."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._asked: dict[str, asyncio.Task[bytes | None]] = {}

    async def put(self, key: str, data: bytes) -> None:
        await self._database.fetch(query("blob_put"), key.partition("/")[0], key, data)

    async def get(self, key: str) -> bytes | None:
        """Whoever asks for what is on its way gets the same: hundreds of items want one page at once."""
        if self._database.is_still:
            return await self._get(key)
        asked = self._asked.get(key)
        if asked is None:
            asked = self._asked[key] = asyncio.create_task(self._get(key))
            asked.add_done_callback(lambda _: self._asked.pop(key, None))
        return await asyncio.shield(asked)

    async def _get(self, key: str) -> bytes | None:
        row = await self._database.find(query("blob_get"), key.partition("/")[0], key)
        return row["data"] if row is not None else None

    async def delete(self, execution: str) -> int:
        row = await self._database.once(query("blob_delete"), execution)
        return int(row["count"]) if row is not None else 0
