"""Keys of the API in the same file."""

from __future__ import annotations

import sqlite3
from typing import Any

from rune.adapters.accessrows import key_of, key_row
from rune.adapters.embedded.database import Database
from rune.adapters.embedded.tables import asked
from rune.ports.keys import Key, unknown_key

_COLUMNS = "id, name, role, scopes, digest, created_at, created_by, expires_at, revoked_at, used_at"


class EmbeddedKeys:
    """Keys by id."""

    def __init__(self, database: Database) -> None:
        self._database = database
        # Whoever owns the file is the only one who makes keys, so it need not look each time.
        self._owned = database.opened > 0
        self._exist: bool | None = None

    async def put(self, key: Key) -> Key:
        def work(db: sqlite3.Connection) -> Key:
            marks = ", ".join("?" * 10)
            db.execute(f"INSERT OR IGNORE INTO api_key ({_COLUMNS}) VALUES ({marks})", key_row(key))
            return _found(db, key.id)

        made = await self._write(work)
        self._exist = True
        return made

    async def find(self, id: str) -> Key | None:
        rows = asked(self._database, f"SELECT {_COLUMNS} FROM api_key WHERE id = ?", (id,))
        return key_of(rows[0]) if rows else None

    async def list(self) -> list[Key]:
        return [
            key_of(row)
            for row in asked(self._database, f"SELECT {_COLUMNS} FROM api_key ORDER BY created_at, id")
        ]

    async def revoke(self, id: str, at: int) -> Key:
        def work(db: sqlite3.Connection) -> Key:
            db.execute("UPDATE api_key SET revoked_at = ? WHERE id = ? AND revoked_at IS NULL", (at, id))
            return _found(db, id)

        return await self._write(work)

    async def used(self, id: str, at: int) -> None:
        await self._database.submit(
            lambda db: db.execute("UPDATE api_key SET used_at = ? WHERE id = ?", (at, id)).rowcount
        )

    async def exist(self) -> bool:
        if self._exist is None or not self._owned:
            self._exist = bool(asked(self._database, "SELECT 1 FROM api_key LIMIT 1"))
        return self._exist

    async def _write(self, work: Any) -> Key:
        key: Key = await self._database.submit(work)
        return key


def _found(db: sqlite3.Connection, id: str) -> Key:
    row = db.execute(f"SELECT {_COLUMNS} FROM api_key WHERE id = ?", (id,)).fetchone()
    if row is None:
        raise unknown_key(id)
    return key_of(row)
