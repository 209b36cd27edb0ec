"""API keys, audit log and start limits in PostgreSQL.

Limits are checked in the transaction that accepts a start, under a row lock.
"""

from __future__ import annotations

import msgspec

from rune.adapters.postgres.database import Database, query
from rune.adapters.rows import entry_of, entry_row, key_of, key_row
from rune.ports.access import ALL_ENTRIES, ApiKey, AuditEntry, AuditFilter, Limits, Session, key_not_found

_MAX_NUMBER = 2**63 - 1
_LIMITS = msgspec.json.Decoder(Limits)


class PostgresApiKeys:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def put(self, key: ApiKey) -> ApiKey:
        await self._database.fetch(query("api_key_insert"), *key_row(key))
        found = await self.find(key.id)
        assert found is not None
        return found

    async def find(self, id: str) -> ApiKey | None:
        row = await self._database.find(query("api_key"), id)
        return None if row is None else key_of(row)

    async def list(self) -> list[ApiKey]:
        return [key_of(row) for row in await self._database.fetch(query("api_keys"))]

    async def revoke(self, id: str, at: int) -> ApiKey:
        row = await self._database.row(query("api_key_revoke"), id, at)
        if row is None:
            raise key_not_found(id)
        return key_of(row)

    async def mark_used(self, id: str, at: int) -> None:
        await self._database.fetch(query("api_key_mark_used"), id, at)

    async def exist(self) -> bool:
        (row,) = await self._database.fetch(query("api_keys_exist"))
        return bool(row["found"])


class PostgresSessions:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def put(self, session: Session) -> None:
        await self._database.fetch(query("session_insert"), *msgspec.structs.astuple(session))

    async def find(self, id: str) -> Session | None:
        row = await self._database.find(query("session_find"), id)
        return None if row is None else Session(**dict(row))

    async def remove(self, id: str) -> None:
        await self._database.fetch(query("session_remove"), id)


class PostgresAuditLog:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def write(self, entry: AuditEntry) -> None:
        await self._database.fetch(query("audit_write"), *entry_row(entry))

    async def read(
        self, wanted: AuditFilter = ALL_ENTRIES, *, before: int | None = None, limit: int = 100
    ) -> list[AuditEntry]:
        last = _MAX_NUMBER if before is None else before
        rows = await self._database.find_all(
            query("audit_read"), last, wanted.actor, wanted.action, wanted.target, limit
        )
        return [entry_of(row) for row in rows]


class PostgresStartLimits:
    """Limits by subject. Rates use the clock of the database, because the clocks of API processes may differ."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def put(self, subject: str, limits: Limits, at: int) -> None:
        if not limits:
            await self._database.fetch(query("start_limits_remove"), subject)
            return
        bucket = limits.bucket
        rate = (None, None, None) if bucket is None else (bucket.starts, bucket.period, bucket.burst)
        text = msgspec.json.encode(limits).decode()
        await self._database.fetch(query("start_limits_put"), subject, text, *rate, limits.running)

    async def all(self) -> dict[str, Limits]:
        rows = await self._database.fetch(query("start_limits"))
        return {row["subject"]: _LIMITS.decode(row["limits"]) for row in rows}
