"""Credentials in the same file, sealed. Nothing of a value is ever written in the clear."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from rune.adapters.embedded.database import Database
from rune.adapters.keyring import KeyRing
from rune.adapters.keysource import KeySource
from rune.adapters.sealing import Sealed, changed, listing_of, opened, seal
from rune.ports.journal import StoreAway
from rune.ports.secret import Credential, Draft, KeyProblem, Listing, Missing, NameTaken, Unreadable

T = TypeVar("T")

_COLUMNS = "id, name, type, version, key, sealed, shown, created_at, changed_at"
_BY = f"SELECT {_COLUMNS} FROM credential WHERE id = ?1 OR name = ?1"


class EmbeddedSecret:
    """Credentials by name or id."""

    def __init__(self, database: Database, keys: KeySource) -> None:
        self._database = database
        self._keys = keys

    async def put(self, draft: Draft) -> Listing:
        def work(db: sqlite3.Connection) -> Listing:
            known = _row(db, draft.id)
            if known is not None and known.name == draft.name:
                return listing_of(known)
            if known is not None or _row(db, draft.name) is not None:
                raise NameTaken(f"there is a credential `{draft.name}` already")
            type = str(draft.fields.__struct_config__.tag)
            row = Sealed(draft.id, draft.name, type, 1, "", b"", b"", draft.at, draft.at)
            sealed = seal(self._first_ring(db), row, draft.fields, draft.hosts)
            db.execute(
                f"INSERT INTO credential ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", _values(sealed)
            )
            return listing_of(sealed)

        return await self._write(work)

    def _first_ring(self, db: sqlite3.Connection) -> KeyRing:
        """The keys. A first one is made only where nothing is sealed: otherwise one was lost, and that must be seen."""
        used = db.execute("SELECT count(*), max(key) FROM credential").fetchone()
        if not used[0]:
            return self._keys.ring_or_new()
        try:
            return self._keys.ring()
        except KeyProblem as problem:
            if problem.code != "SECRET_KEY_MISSING":
                raise
            sealed = "1 credential is" if used[0] == 1 else f"{used[0]} credentials are"
            raise KeyProblem(
                f"{problem.message}; {sealed} sealed with the key {used[1]}: bring it back", code=problem.code
            ) from None

    async def resolve(self, reference: str) -> Credential | None:
        row = _row(self._database.reader, reference)
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
        rows = _asked(self._database.reader, f"SELECT {_COLUMNS} FROM credential ORDER BY name", ())
        return [listing_of(Sealed(*row)) for row in rows]

    async def find(self, reference: str) -> Listing | None:
        row = _row(self._database.reader, reference)
        return None if row is None else listing_of(row)

    async def rotate(
        self, reference: str, values: Mapping[str, Any], hosts: tuple[str, ...] | None, at: int
    ) -> Listing:
        def work(db: sqlite3.Connection) -> Listing:
            old = _found(db, reference)
            ring = self._keys.ring()
            fields, kept = changed(ring, old, values)
            new = msgspec.structs.replace(old, version=old.version + 1, changed_at=at)
            sealed = seal(ring, new, fields, kept if hosts is None else hosts)
            _update(db, sealed)
            return listing_of(sealed)

        return await self._write(work)

    async def remove(self, reference: str) -> Listing:
        def work(db: sqlite3.Connection) -> Listing:
            row = _found(db, reference)
            _clean(db, "DELETE FROM credential WHERE id = ?", (row.id,))
            return listing_of(row)

        return await self._write(work)

    async def rekey(self) -> int:
        def work(db: sqlite3.Connection) -> int:
            ring = self._keys.ring()
            rows = [Sealed(*row) for row in db.execute(f"SELECT {_COLUMNS} FROM credential")]
            old = [row for row in rows if row.key != ring.names[0]]
            for row in old:
                try:
                    content = opened(ring, row)
                except Unreadable as error:
                    raise Unreadable(f"`{row.name}`: {error.message}; nothing was changed") from None
                _update(db, seal(ring, row, content.fields, content.hosts))
            return len(old)

        return await self._write(work)

    async def _write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        answer: T = await self._database.submit(work)
        return answer


def _asked(db: sqlite3.Connection, statement: str, values: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    try:
        return db.execute(statement, values).fetchall()
    except sqlite3.Error as error:
        raise StoreAway(f"the credentials cannot be read: {error}") from None


def _row(db: sqlite3.Connection, reference: str) -> Sealed | None:
    rows = _asked(db, _BY, (reference,))
    return Sealed(*rows[0]) if rows else None


def _found(db: sqlite3.Connection, reference: str) -> Sealed:
    row = _row(db, reference)
    if row is None:
        raise Missing(f"there is no credential `{reference[:128]}`")
    return row


def _update(db: sqlite3.Connection, row: Sealed) -> None:
    _clean(
        db,
        "UPDATE credential SET version = ?, key = ?, sealed = ?, shown = ?, changed_at = ? WHERE id = ?",
        (row.version, row.key, row.sealed, row.shown, row.changed_at, row.id),
    )


def _clean(db: sqlite3.Connection, statement: str, values: tuple[Any, ...]) -> None:
    """What is replaced is overwritten: a key that was given up must not open what is left in the file."""
    db.execute("PRAGMA secure_delete = ON")
    try:
        db.execute(statement, values)
    finally:
        db.execute("PRAGMA secure_delete = OFF")


def _values(row: Sealed) -> tuple[Any, ...]:
    return msgspec.structs.astuple(row)
