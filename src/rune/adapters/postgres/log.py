"""The log in the same database."""

from __future__ import annotations

from rune.adapters.accessrows import entry_of, entry_row
from rune.adapters.postgres.database import Database
from rune.adapters.postgres.sql import query
from rune.ports.log import ALL, Entry, Wanted

_LAST = 2**63 - 1


class PostgresLog:
    """Entries in the order they were written."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def write(self, entry: Entry) -> None:
        await self._database.fetch(query("log_write"), *entry_row(entry))

    async def read(self, wanted: Wanted = ALL, *, before: int | None = None, limit: int = 100) -> list[Entry]:
        last = _LAST if before is None else before
        rows = await self._database.look(
            query("log_read"), last, wanted.actor, wanted.action, wanted.target, limit
        )
        return [entry_of(row) for row in rows]
