"""Grants of credentials in the same file."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection

from rune.adapters.accessrows import grants_of, grants_text
from rune.adapters.embedded.database import Database
from rune.adapters.embedded.tables import asked

_OF = "SELECT whom FROM credential_grant WHERE credential = ?"


class EmbeddedGrants:
    """Grants by the id of a credential."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def of(self, credential: str) -> frozenset[str]:
        rows = asked(self._database, _OF, (credential,))
        return grants_of(rows[0][0] if rows else None)

    async def change(self, credential: str, add: Collection[str], remove: Collection[str]) -> frozenset[str]:
        def work(db: sqlite3.Connection) -> frozenset[str]:
            row = db.execute(_OF, (credential,)).fetchone()
            found = (grants_of(row[0] if row else None) | set(add)) - set(remove)
            db.execute(
                "INSERT INTO credential_grant VALUES (?, ?) ON CONFLICT DO UPDATE SET whom = excluded.whom",
                (credential, grants_text(found)),
            )
            return found

        answer: frozenset[str] = await self._database.submit(work)
        return answer
