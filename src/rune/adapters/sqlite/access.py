"""API keys, the audit log, start limits, and encrypted credentials with their grants in SQLite.

Values of credentials are never written unencrypted.
"""

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
from rune.adapters.rows import changed_grants, entry_of, entry_row, grants_of, grants_text, key_of, key_row
from rune.adapters.sqlite.database import Database, is_damage, read
from rune.core.json_decoder import JsonDecoder
from rune.ports.access import (
    ALL_ENTRIES,
    FULL,
    RATE,
    RUNNING,
    ApiKey,
    AppliedLimits,
    AuditEntry,
    AuditFilter,
    Bucket,
    Limits,
    Session,
    StartLimitError,
    key_not_found,
    start_limit_error,
)
from rune.ports.credentials import (
    Credential,
    CredentialSummary,
    NewCredential,
    credential_not_found,
)
from rune.ports.journal import ExecutionRecord, StoreUnavailableError

_KEY_COLUMNS = "id, name, role, scopes, digest, created_at, created_by, expires_at, revoked_at, used_at"
_SESSION_COLUMNS = "id, principal, proof, created_at, expires_at"
_AUDIT_COLUMNS = "number, id, at, actor, action, target, details, outcome"
_WITH_ORIGINS = 12
"""The schema version from which on entries have an address and a request. A reader may find a file that no owner has
migrated yet."""
_MATCHING = (
    " AND (?2 IS NULL OR actor = ?2)"
    " AND (?3 IS NULL OR action = ?3 OR substr(action, 1, length(?3) + 1) = ?3 || '.')"
    " AND (?4 IS NULL OR target = ?4)"
)
_NEWEST = f"number < ?1{_MATCHING} ORDER BY number DESC LIMIT ?5"
_NEXT = f"number > ?1{_MATCHING} ORDER BY number LIMIT ?5"
_INSERT_ENTRY = (
    "INSERT OR IGNORE INTO log (id, at, actor, action, target, details, outcome, address, request)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_MAX_NUMBER = 2**63 - 1
_LIMITS_DECODER = JsonDecoder(Limits)
_COUNT_RUNNING = (
    "SELECT count(*) FROM"
    " (SELECT 1 FROM execution WHERE workflow = ? AND status IN ('running', 'paused') LIMIT ?)"
)
_DELETE_ENDED_STARTS = (
    "DELETE FROM limited_start WHERE subject = ? AND NOT EXISTS"
    " (SELECT 1 FROM execution WHERE id = limited_start.execution AND end IS NULL)"
)

T = TypeVar("T")

_COLUMNS = "id, name, type, version, key, sealed, shown, created_at, changed_at"
_SELECT_BY_REFERENCE = f"SELECT {_COLUMNS} FROM credential WHERE id = ?1 OR name = ?1"

_PUT_GRANTS = "INSERT INTO credential_grant VALUES (?, ?) ON CONFLICT DO UPDATE SET whom = excluded.whom"
_SELECT_GRANTS = "SELECT whom FROM credential_grant WHERE credential = ?"


class SqliteApiKeys:
    """Implements the API key store."""

    def __init__(self, database: Database) -> None:
        self._database = database
        # The owner process is the only one that creates keys, so it can cache whether any exist.
        self._owned = database.opened > 0
        self._exist: bool | None = None

    async def put(self, key: ApiKey) -> ApiKey:
        def work(db: sqlite3.Connection) -> ApiKey:
            marks = ", ".join("?" * 10)
            db.execute(f"INSERT OR IGNORE INTO api_key ({_KEY_COLUMNS}) VALUES ({marks})", key_row(key))
            return _get_key(db, key.id)

        made = await self._write(work)
        self._exist = True
        return made

    async def find(self, id: str) -> ApiKey | None:
        rows = read(self._database, f"SELECT {_KEY_COLUMNS} FROM api_key WHERE id = ?", (id,))
        return key_of(rows[0]) if rows else None

    async def list(self) -> list[ApiKey]:
        return [
            key_of(row)
            for row in read(self._database, f"SELECT {_KEY_COLUMNS} FROM api_key ORDER BY created_at, id")
        ]

    async def revoke(self, id: str, at: int) -> ApiKey:
        def work(db: sqlite3.Connection) -> ApiKey:
            db.execute("UPDATE api_key SET revoked_at = ? WHERE id = ? AND revoked_at IS NULL", (at, id))
            return _get_key(db, id)

        return await self._write(work)

    async def mark_used(self, id: str, at: int) -> None:
        await self._database.submit(
            lambda db: db.execute("UPDATE api_key SET used_at = ? WHERE id = ?", (at, id)).rowcount
        )

    async def exist(self) -> bool:
        if self._exist is None or not self._owned:
            self._exist = bool(read(self._database, "SELECT 1 FROM api_key LIMIT 1"))
        return self._exist

    async def _write(self, work: Any) -> ApiKey:
        key: ApiKey = await self._database.submit(work)
        return key


def _get_key(db: sqlite3.Connection, id: str) -> ApiKey:
    row = db.execute(f"SELECT {_KEY_COLUMNS} FROM api_key WHERE id = ?", (id,)).fetchone()
    if row is None:
        raise key_not_found(id)
    return key_of(row)


class SqliteSessions:
    """Implements the session store."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def put(self, session: Session) -> None:
        row = msgspec.structs.astuple(session)

        def work(db: sqlite3.Connection) -> None:
            db.execute("DELETE FROM session WHERE expires_at <= ?", (session.created_at,))
            db.execute(f"INSERT INTO session ({_SESSION_COLUMNS}) VALUES (?, ?, ?, ?, ?)", row)

        await self._database.submit(work)

    async def find(self, id: str) -> Session | None:
        rows = read(self._database, f"SELECT {_SESSION_COLUMNS} FROM session WHERE id = ?", (id,))
        return Session(**dict(zip(Session.__struct_fields__, rows[0], strict=True))) if rows else None

    async def remove(self, id: str) -> None:
        await self._database.submit(lambda db: db.execute("DELETE FROM session WHERE id = ?", (id,)).rowcount)


class SqliteAuditLog:
    """Implements the audit log store."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def write(self, entry: AuditEntry) -> None:
        await self._database.submit(lambda db: db.execute(_INSERT_ENTRY, entry_row(entry)).rowcount)

    async def read(
        self, wanted: AuditFilter = ALL_ENTRIES, *, before: int | None = None, limit: int = 100
    ) -> list[AuditEntry]:
        return self._read(_NEWEST, _MAX_NUMBER if before is None else before, wanted, limit)

    async def follow(
        self, after: int, wanted: AuditFilter = ALL_ENTRIES, *, limit: int = 100
    ) -> list[AuditEntry]:
        return self._read(_NEXT, after, wanted, limit)

    def _read(self, condition: str, place: int, wanted: AuditFilter, limit: int) -> list[AuditEntry]:
        (schema,) = self._database.reader.execute("PRAGMA user_version").fetchone()
        origins = "address, request" if schema >= _WITH_ORIGINS else "'', ''"
        statement = f"SELECT {_AUDIT_COLUMNS}, {origins} FROM log WHERE {condition}"
        values = (place, wanted.actor, wanted.action, wanted.target, limit)
        return [entry_of(row) for row in read(self._database, statement, values)]


class SqliteStartLimits:
    """Implements the store of start limits."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def put(self, subject: str, limits: Limits, at: int) -> None:
        await self._database.submit(lambda db: _put_limits(db, subject, limits, at))

    async def all(self) -> dict[str, Limits]:
        rows = read(self._database, "SELECT subject, limits FROM start_limit ORDER BY subject")
        return {subject: _LIMITS_DECODER.decode(text) for subject, text in rows}


class _LimitRow(msgspec.Struct, frozen=True):
    subject: str
    limits: Limits
    level: int
    filled_at: int

    @property
    def bucket(self) -> Bucket | None:
        return self.limits.bucket


def check_start_limits(
    db: sqlite3.Connection, execution: ExecutionRecord, held: AppliedLimits
) -> StartLimitError | None:
    """Return why a new start is rejected, or count it. Runs in the writer thread, so checks and counts cannot race."""
    if held.full:
        return start_limit_error(FULL, "", full=held.full)
    rows = _limit_rows(db, held.subjects)
    for row in rows:
        error = _exceeded(db, row, execution.at)
        if error is not None:
            return error
    for row in rows:
        _count_start(db, row, execution)
    return None


def _put_limits(db: sqlite3.Connection, subject: str, limits: Limits, at: int) -> None:
    if not limits:
        db.execute("DELETE FROM start_limit WHERE subject = ?", (subject,))
        return
    known = _limit_rows(db, (subject,))
    bucket = limits.bucket
    level = bucket.full if bucket is not None else 0
    if known and known[0].bucket == bucket:
        level, at = known[0].level, known[0].filled_at
    text = msgspec.json.encode(limits).decode()
    db.execute("INSERT OR REPLACE INTO start_limit VALUES (?, ?, ?, ?)", (subject, text, level, at))


def _limit_rows(db: sqlite3.Connection, subjects: Sequence[str]) -> list[_LimitRow]:
    found = []
    for each in subjects:
        row = db.execute("SELECT * FROM start_limit WHERE subject = ?", (each,)).fetchone()
        if row is not None:
            found.append(_LimitRow(row[0], _LIMITS_DECODER.decode(row[1]), row[2], row[3]))
    return found


def _exceeded(db: sqlite3.Connection, row: _LimitRow, now: int) -> StartLimitError | None:
    limit, bucket = row.limits.running, row.bucket
    if limit is not None and _count_running(db, row.subject, limit) >= limit:
        return start_limit_error(RUNNING, row.subject)
    if bucket is not None:
        pause = bucket.pause(bucket.level(row.level, now - row.filled_at))
        if pause:
            return start_limit_error(RATE, row.subject, pause)
    return None


def _count_running(db: sqlite3.Connection, subject: str, limit: int) -> int:
    """Count the unfinished executions of a subject, those of a workflow up to `limit`."""
    kind, _, name = subject.partition(":")
    if kind == "workflow":
        (count,) = db.execute(_COUNT_RUNNING, (name, limit)).fetchone()
    else:
        db.execute(_DELETE_ENDED_STARTS, (subject,))
        (count,) = db.execute("SELECT count(*) FROM limited_start WHERE subject = ?", (subject,)).fetchone()
    return int(count)


def _count_start(db: sqlite3.Connection, row: _LimitRow, execution: ExecutionRecord) -> None:
    bucket = row.bucket
    if bucket is not None:
        left = bucket.level(row.level, execution.at - row.filled_at) - bucket.period
        db.execute(
            "UPDATE start_limit SET level = ?, filled_at = ? WHERE subject = ?",
            (left, max(row.filled_at, execution.at), row.subject),
        )
    if row.limits.running is not None and row.subject.startswith("key:"):
        db.execute("INSERT INTO limited_start VALUES (?, ?)", (row.subject, execution.id))


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
        if is_damage(error):
            raise
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
