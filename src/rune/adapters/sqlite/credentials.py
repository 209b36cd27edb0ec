"""Encrypted credentials and their grants in SQLite. Values are never written unencrypted."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar

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
from rune.adapters.rows import changed_grants, grants_of, grants_text
from rune.adapters.sqlite.database import Database, read
from rune.ports.credentials import (
    Credential,
    CredentialSummary,
    NewCredential,
    credential_not_found,
)
from rune.ports.journal import StoreUnavailableError

T = TypeVar("T")

_COLUMNS = "id, name, type, version, key, sealed, shown, created_at, changed_at"
_SELECT_BY_REFERENCE = f"SELECT {_COLUMNS} FROM credential WHERE id = ?1 OR name = ?1"


_PUT_GRANTS = "INSERT INTO credential_grant VALUES (?, ?) ON CONFLICT DO UPDATE SET whom = excluded.whom"
_SELECT_GRANTS = "SELECT whom FROM credential_grant WHERE credential = ?"


class SqliteCredentials:
    """Implements the credential store."""

    def __init__(self, database: Database, keys: KeySource) -> None:
        self._database = database
        self._keys = keys

    async def put(self, draft: NewCredential) -> CredentialSummary:
        def work(db: sqlite3.Connection) -> CredentialSummary:
            known = _find_row(db, draft.id) or _find_row(db, draft.name)
            if known is not None:
                return stored_before(known, draft)
            used = db.execute("SELECT count(*), max(key) FROM credential").fetchone()
            sealed = first(self._keys.ring_beside(*used), draft)
            db.execute(
                f"INSERT INTO credential ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                msgspec.structs.astuple(sealed),
            )
            if draft.grants is not None:
                db.execute(_PUT_GRANTS, (draft.id, grants_text(draft.grants)))
            return summary_of(sealed)

        return await self._write(work)

    async def resolve(self, reference: str) -> Credential | None:
        row = _find_row(self._database.reader, reference)
        return None if row is None else credential_of(self._keys.ring(), row)

    async def list(self) -> Sequence[CredentialSummary]:
        rows = _select(self._database.reader, f"SELECT {_COLUMNS} FROM credential ORDER BY name", ())
        return [summary_of(EncryptedCredential(*row)) for row in rows]

    async def find(self, reference: str) -> CredentialSummary | None:
        row = _find_row(self._database.reader, reference)
        return None if row is None else summary_of(row)

    async def rotate(
        self,
        reference: str,
        values: Mapping[str, Any],
        hosts: tuple[str, ...] | None,
        at: int,
        insecure: bool | None = None,
    ) -> CredentialSummary:
        def work(db: sqlite3.Connection) -> CredentialSummary:
            old = _get_row(db, reference)
            sealed = rotated(self._keys.ring(), old, values, hosts, at, insecure)
            _update(db, sealed)
            return summary_of(sealed)

        return await self._write(work)

    async def remove(self, reference: str) -> CredentialSummary:
        def work(db: sqlite3.Connection) -> CredentialSummary:
            row = _get_row(db, reference)
            _execute_overwriting(db, "DELETE FROM credential WHERE id = ?", (row.id,))
            return summary_of(row)

        return await self._write(work)

    async def reencrypt(self) -> int:
        def work(db: sqlite3.Connection) -> int:
            rows = [EncryptedCredential(*row) for row in db.execute(f"SELECT {_COLUMNS} FROM credential")]
            new = reencrypt(self._keys.ring(), rows)
            for row in new:
                _update(db, row)
            return len(new)

        return await self._write(work)

    async def _write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        result: T = await self._database.submit(work)
        return result


def _select(db: sqlite3.Connection, statement: str, values: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    try:
        return db.execute(statement, values).fetchall()
    except sqlite3.Error as error:
        raise StoreUnavailableError(f"the credentials cannot be read: {error}") from None


def _find_row(db: sqlite3.Connection, reference: str) -> EncryptedCredential | None:
    rows = _select(db, _SELECT_BY_REFERENCE, (reference,))
    return EncryptedCredential(*rows[0]) if rows else None


def _get_row(db: sqlite3.Connection, reference: str) -> EncryptedCredential:
    row = _find_row(db, reference)
    if row is None:
        raise credential_not_found(reference)
    return row


def _update(db: sqlite3.Connection, row: EncryptedCredential) -> None:
    _execute_overwriting(
        db,
        "UPDATE credential SET version = ?, key = ?, sealed = ?, shown = ?, changed_at = ? WHERE id = ?",
        (row.version, row.key, row.sealed, row.shown, row.changed_at, row.id),
    )


def _execute_overwriting(db: sqlite3.Connection, statement: str, values: tuple[Any, ...]) -> None:
    """Execute a statement and overwrite what it deletes, so that an old key cannot decrypt remains in the file."""
    db.execute("PRAGMA secure_delete = ON")
    try:
        db.execute(statement, values)
    finally:
        db.execute("PRAGMA secure_delete = OFF")


class SqliteGrants:
    """Implements the credential grants."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def of(self, credential: str) -> frozenset[str]:
        rows = read(self._database, _SELECT_GRANTS, (credential,))
        return grants_of(rows[0][0] if rows else None)

    async def change(self, credential: str, add: Collection[str], remove: Collection[str]) -> frozenset[str]:
        def work(db: sqlite3.Connection) -> frozenset[str]:
            row = db.execute(_SELECT_GRANTS, (credential,)).fetchone()
            found = changed_grants(row[0] if row else None, add, remove)
            db.execute(_PUT_GRANTS, (credential, grants_text(found)))
            return found

        grants: frozenset[str] = await self._database.submit(work)
        return grants
