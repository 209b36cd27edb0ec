"""The log in the same file."""

from __future__ import annotations

from rune.adapters.accessrows import entry_of, entry_row
from rune.adapters.embedded.database import Database
from rune.adapters.embedded.tables import asked
from rune.ports.log import ALL, Entry, Wanted

_COLUMNS = "number, id, at, actor, action, target, details, outcome"
_READ = (
    f"SELECT {_COLUMNS} FROM log WHERE number < ?1 AND (?2 IS NULL OR actor = ?2)"
    " AND (?3 IS NULL OR action = ?3 OR substr(action, 1, length(?3) + 1) = ?3 || '.')"
    " AND (?4 IS NULL OR target = ?4) ORDER BY number DESC LIMIT ?5"
)
_WRITE = (
    "INSERT OR IGNORE INTO log (id, at, actor, action, target, details, outcome) VALUES (?, ?, ?, ?, ?, ?, ?)"
)
_LAST = 2**63 - 1


class EmbeddedLog:
    """Entries in the order they were written."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def write(self, entry: Entry) -> None:
        await self._database.submit(lambda db: db.execute(_WRITE, entry_row(entry)).rowcount)

    async def read(self, wanted: Wanted = ALL, *, before: int | None = None, limit: int = 100) -> list[Entry]:
        last = _LAST if before is None else before
        given = (last, wanted.actor, wanted.action, wanted.target, limit)
        return [entry_of(row) for row in asked(self._database, _READ, given)]
