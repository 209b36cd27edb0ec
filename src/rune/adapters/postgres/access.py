"""Keys of the API in the same database.

The log in the same database.

Limits on starts in the same database. They are judged in the act that accepts a start, under a lock.
"""

from __future__ import annotations

import msgspec

from rune.adapters.postgres.database import Database, query
from rune.adapters.rows import entry_of, entry_row, key_of, key_row
from rune.ports.access import ALL_ENTRIES, ApiKey, AuditEntry, AuditFilter, Limits, key_not_found


class PostgresApiKeys:
    """Keys by id."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def put(self, key: ApiKey) -> ApiKey:
        await self._database.fetch(query("key_insert"), *key_row(key))
        found = await self.find(key.id)
        assert found is not None
        return found

    async def find(self, id: str) -> ApiKey | None:
        row = await self._database.find(query("key"), id)
        return None if row is None else key_of(row)

    async def list(self) -> list[ApiKey]:
        return [key_of(row) for row in await self._database.fetch(query("keys"))]

    async def revoke(self, id: str, at: int) -> ApiKey:
        row = await self._database.row(query("key_revoke"), id, at)
        if row is None:
            raise key_not_found(id)
        return key_of(row)

    async def mark_used(self, id: str, at: int) -> None:
        await self._database.fetch(query("key_used"), id, at)

    async def exist(self) -> bool:
        (row,) = await self._database.fetch(query("keys_exist"))
        return bool(row["found"])


_LAST = 2**63 - 1


class PostgresAuditLog:
    """Entries in the order they were written."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def write(self, entry: AuditEntry) -> None:
        await self._database.fetch(query("log_write"), *entry_row(entry))

    async def read(
        self, wanted: AuditFilter = ALL_ENTRIES, *, before: int | None = None, limit: int = 100
    ) -> list[AuditEntry]:
        last = _LAST if before is None else before
        rows = await self._database.look(
            query("log_read"), last, wanted.actor, wanted.action, wanted.target, limit
        )
        return [entry_of(row) for row in rows]


_LIMITS = msgspec.json.Decoder(Limits)


class PostgresStartLimits:
    """Limits by whom they are for. Time is the database's: the clocks of those who ask it may be apart."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def put(self, subject: str, limits: Limits, at: int) -> None:
        if not limits:
            await self._database.fetch(query("limits_remove"), subject)
            return
        bucket = limits.bucket
        counted = (None, None, None) if bucket is None else (bucket.starts, bucket.period, bucket.burst)
        text = msgspec.json.encode(limits).decode()
        await self._database.fetch(query("limits_put"), subject, text, *counted, limits.running)

    async def all(self) -> dict[str, Limits]:
        rows = await self._database.fetch(query("limits"))
        return {row["subject"]: _LIMITS.decode(row["limits"]) for row in rows}
