"""Keys of the API in the same database."""

from __future__ import annotations

from rune.adapters.accessrows import key_of, key_row
from rune.adapters.postgres.database import Database
from rune.adapters.postgres.sql import query
from rune.ports.keys import Key, unknown_key


class PostgresKeys:
    """Keys by id."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def put(self, key: Key) -> Key:
        await self._database.fetch(query("key_insert"), *key_row(key))
        found = await self.find(key.id)
        assert found is not None
        return found

    async def find(self, id: str) -> Key | None:
        row = await self._database.find(query("key"), id)
        return None if row is None else key_of(row)

    async def list(self) -> list[Key]:
        return [key_of(row) for row in await self._database.fetch(query("keys"))]

    async def revoke(self, id: str, at: int) -> Key:
        row = await self._database.row(query("key_revoke"), id, at)
        if row is None:
            raise unknown_key(id)
        return key_of(row)

    async def used(self, id: str, at: int) -> None:
        await self._database.fetch(query("key_used"), id, at)

    async def exist(self) -> bool:
        (row,) = await self._database.fetch(query("keys_exist"))
        return bool(row["found"])
