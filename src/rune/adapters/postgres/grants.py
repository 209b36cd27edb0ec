"""Grants of credentials in the same database."""

from __future__ import annotations

from collections.abc import Collection

from rune.adapters.accessrows import grants_of, grants_text
from rune.adapters.postgres.database import Database
from rune.adapters.postgres.sql import query


class PostgresGrants:
    """Grants by the id of a credential."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def of(self, credential: str) -> frozenset[str]:
        row = await self._database.find(query("grants"), credential)
        return grants_of(None if row is None else row["whom"])

    async def change(self, credential: str, add: Collection[str], remove: Collection[str]) -> frozenset[str]:
        async with self._database.transaction() as connection:
            await connection.execute(query("credential_lock"))
            row = await connection.fetchrow(query("grants"), credential)
            found = (grants_of(None if row is None else row["whom"]) | set(add)) - set(remove)
            await connection.execute(query("grants_put"), credential, grants_text(found))
        return found
