"""API keys, the audit log, start limits, and encrypted credentials with their grants in PostgreSQL.

Limits are checked in the transaction that accepts a start, under a row lock. The database never receives a plaintext
value of a credential.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec

from rune.adapters.encryption import (
    EncryptedCredential,
    KeySource,
    credential_of,
    first,
    reencrypt,
    rotated,
    stored_before,
    summary_of,
)
from rune.adapters.postgres.database import Connection, Database, is_storable, query
from rune.adapters.rows import changed_grants, entry_of, entry_row, grants_of, grants_text, key_of, key_row
from rune.core.json_decoder import JsonDecoder
from rune.ports.access import ALL_ENTRIES, ApiKey, AuditEntry, AuditFilter, Limits, Session, key_not_found
from rune.ports.credentials import (
    Credential,
    CredentialSummary,
    NewCredential,
    credential_not_found,
)

_MAX_NUMBER = 2**63 - 1
_LIMITS = JsonDecoder(Limits)


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
        return await self._read("audit_read", _MAX_NUMBER if before is None else before, wanted, limit)

    async def follow(
        self, after: int, wanted: AuditFilter = ALL_ENTRIES, *, limit: int = 100
    ) -> list[AuditEntry]:
        return await self._read("audit_follow", after, wanted, limit)

    async def _read(self, name: str, place: int, wanted: AuditFilter, limit: int) -> list[AuditEntry]:
        rows = await self._database.find_all(
            query(name), place, wanted.actor, wanted.action, wanted.target, limit
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


class PostgresCredentials:
    """Credentials by name or id. Changes are serialised by an advisory lock."""

    def __init__(self, database: Database, keys: KeySource) -> None:
        self._database = database
        self._keys = keys

    async def put(self, draft: NewCredential) -> CredentialSummary:
        async with self._database.transaction() as connection:
            await connection.execute(query("credential_lock"))
            known = await _find(connection, draft.id) or await _find(connection, draft.name)
            if known is not None:
                return stored_before(known, draft)
            used = await connection.fetchrow(query("credential_keys"))
            sealed = first(self._keys.ring_beside(*used), draft)
            await connection.execute(query("credential_insert"), *msgspec.structs.astuple(sealed))
            if draft.grants is not None:
                await connection.execute(query("grants_put"), draft.id, grants_text(draft.grants))
        return summary_of(sealed)

    async def resolve(self, reference: str) -> Credential | None:
        row = await self._find(reference)
        return None if row is None else credential_of(self._keys.ring(), row)

    async def list(self) -> Sequence[CredentialSummary]:
        return [
            summary_of(EncryptedCredential(*row)) for row in await self._database.fetch(query("credentials"))
        ]

    async def find(self, reference: str) -> CredentialSummary | None:
        row = await self._find(reference)
        return None if row is None else summary_of(row)

    async def _find(self, reference: str) -> EncryptedCredential | None:
        row = await self._database.find(query("credential"), reference)
        return None if row is None else EncryptedCredential(*row)

    async def rotate(
        self,
        reference: str,
        values: Mapping[str, Any],
        hosts: tuple[str, ...] | None,
        at: int,
        insecure: bool | None = None,
    ) -> CredentialSummary:
        async with self._database.transaction() as connection:
            old = await _lock_and_find(connection, reference)
            sealed = rotated(self._keys.ring(), old, values, hosts, at, insecure)
            await _update(connection, sealed)
        return summary_of(sealed)

    async def remove(self, reference: str) -> CredentialSummary:
        async with self._database.transaction() as connection:
            row = await _lock_and_find(connection, reference)
            await connection.execute(query("credential_delete"), row.id)
        return summary_of(row)

    async def reencrypt(self) -> int:
        async with self._database.transaction() as connection:
            await connection.execute(query("credential_lock"))
            rows = [EncryptedCredential(*row) for row in await connection.fetch(query("credentials"))]
            new = reencrypt(self._keys.ring(), rows)
            for row in new:
                await _update(connection, row)
        return len(new)


async def _find(connection: Connection, reference: str) -> EncryptedCredential | None:
    row = await connection.fetchrow(query("credential"), reference) if is_storable(reference) else None
    return None if row is None else EncryptedCredential(*row)


async def _lock_and_find(connection: Connection, reference: str) -> EncryptedCredential:
    await connection.execute(query("credential_lock"))
    row = await _find(connection, reference)
    if row is None:
        raise credential_not_found(reference)
    return row


async def _update(connection: Connection, row: EncryptedCredential) -> None:
    await connection.execute(
        query("credential_update"), row.version, row.key, row.sealed, row.shown, row.changed_at, row.id
    )


class PostgresGrants:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def of(self, credential: str) -> frozenset[str]:
        row = await self._database.find(query("grants"), credential)
        return grants_of(None if row is None else row["whom"])

    async def change(self, credential: str, add: Collection[str], remove: Collection[str]) -> frozenset[str]:
        async with self._database.transaction() as connection:
            await connection.execute(query("credential_lock"))
            row = await connection.fetchrow(query("grants"), credential)
            found = changed_grants(None if row is None else row["whom"], add, remove)
            await connection.execute(query("grants_put"), credential, grants_text(found))
        return found
