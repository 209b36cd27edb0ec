"""Credentials in the same database, sealed. Nothing of a value is ever written or sent in the clear."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from rune.adapters.keyring import KeyRing
from rune.adapters.keysource import KeySource
from rune.adapters.postgres.database import Connection, Database, spelt
from rune.adapters.postgres.sql import query
from rune.adapters.sealing import Sealed, changed, listing_of, opened, seal
from rune.ports.secret import (
    Credential,
    Draft,
    KeyProblem,
    Listing,
    Missing,
    NameTaken,
    Unreadable,
)


class PostgresSecret:
    """Credentials by name or id. Whoever changes one does so alone."""

    def __init__(self, database: Database, keys: KeySource) -> None:
        self._database = database
        self._keys = keys

    async def put(self, draft: Draft) -> Listing:
        async with self._database.transaction() as connection:
            await connection.execute(query("credential_lock"))
            known = await _row(connection, draft.id)
            if known is not None and known.name == draft.name:
                return listing_of(known)
            if known is not None or await _row(connection, draft.name) is not None:
                raise NameTaken(f"there is a credential `{draft.name}` already")
            type = str(draft.fields.__struct_config__.tag)
            row = Sealed(draft.id, draft.name, type, 1, "", b"", b"", draft.at, draft.at)
            sealed = seal(await self._first_ring(connection), row, draft.fields, draft.hosts)
            await connection.execute(query("credential_insert"), *msgspec.structs.astuple(sealed))
        return listing_of(sealed)

    async def _first_ring(self, connection: Connection) -> KeyRing:
        """The keys. A first one is made only where nothing is sealed: otherwise one was lost, and that must be seen."""
        count, key = await connection.fetchrow(query("credential_keys"))
        if not count:
            return self._keys.ring_or_new()
        try:
            return self._keys.ring()
        except KeyProblem as problem:
            if problem.code != "SECRET_KEY_MISSING":
                raise
            sealed = "1 credential is" if count == 1 else f"{count} credentials are"
            raise KeyProblem(
                f"{problem.message}; {sealed} sealed with the key {key}: bring it back", code=problem.code
            ) from None

    async def resolve(self, reference: str) -> Credential | None:
        row = await self._found(reference)
        if row is None:
            return None
        content = opened(self._keys.ring(), row)
        return Credential(
            id=row.id,
            name=row.name,
            type=row.type,
            version=row.version,
            fields=content.fields,
            hosts=content.hosts,
        )

    async def list(self) -> Sequence[Listing]:
        return [listing_of(Sealed(*row)) for row in await self._database.fetch(query("credentials"))]

    async def find(self, reference: str) -> Listing | None:
        row = await self._found(reference)
        return None if row is None else listing_of(row)

    async def _found(self, reference: str) -> Sealed | None:
        row = await self._database.find(query("credential"), reference)
        return None if row is None else Sealed(*row)

    async def rotate(
        self, reference: str, values: Mapping[str, Any], hosts: tuple[str, ...] | None, at: int
    ) -> Listing:
        async with self._database.transaction() as connection:
            old = await _locked(connection, reference)
            ring = self._keys.ring()
            fields, kept = changed(ring, old, values)
            new = msgspec.structs.replace(old, version=old.version + 1, changed_at=at)
            sealed = seal(ring, new, fields, kept if hosts is None else hosts)
            await _update(connection, sealed)
        return listing_of(sealed)

    async def remove(self, reference: str) -> Listing:
        async with self._database.transaction() as connection:
            row = await _locked(connection, reference)
            await connection.execute(query("credential_delete"), row.id)
        return listing_of(row)

    async def rekey(self) -> int:
        async with self._database.transaction() as connection:
            await connection.execute(query("credential_lock"))
            ring = self._keys.ring()
            rows = [Sealed(*row) for row in await connection.fetch(query("credentials"))]
            old = [row for row in rows if row.key != ring.names[0]]
            for row in old:
                try:
                    content = opened(ring, row)
                except Unreadable as error:
                    raise Unreadable(f"`{row.name}`: {error.message}; nothing was changed") from None
                await _update(connection, seal(ring, row, content.fields, content.hosts))
        return len(old)


async def _row(connection: Connection, reference: str) -> Sealed | None:
    row = await connection.fetchrow(query("credential"), reference) if spelt(reference) else None
    return None if row is None else Sealed(*row)


async def _locked(connection: Connection, reference: str) -> Sealed:
    await connection.execute(query("credential_lock"))
    row = await _row(connection, reference)
    if row is None:
        raise Missing(f"there is no credential `{reference[:128]}`")
    return row


async def _update(connection: Connection, row: Sealed) -> None:
    await connection.execute(
        query("credential_update"), row.version, row.key, row.sealed, row.shown, row.changed_at, row.id
    )
