"""The schema: its migrations, the roles with their privileges per table, and its inspection for `rune doctor`.

Each migration is applied in one transaction together with its row in `rune_migration`. Processes of the previous
release keep running meanwhile: a step only adds, and removes only what the previous release no longer used. A step that
cannot get its locks quickly is rolled back and retried, so that no other statement queues behind it.

The owner of the schema runs migrations and is none of the roles. No role can change the schema, and a compromised
worker can read no API keys and change neither credentials nor the audit log.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any

import asyncpg  # type: ignore[import-untyped]

from rune.adapters.postgres.database import (
    DRIVER_ERRORS,
    Connection,
    Database,
    DatabaseRefusedError,
    map_error,
    migrations,
    query,
    redacted_url,
)
from rune.adapters.rows import WAITING, stored_terms
from rune.ports.journal import NewerFormatError

LOCK_TIMEOUT_S = 60.0
"""How long a step is retried while other sessions lock its tables."""

MIN_SERVER_VERSION = 140_000
SEARCH = "0014"
"""The step after which the existing executions get the terms that they are found by."""

_RETRY_DELAY_S = 0.2

PRIVILEGES = {"r": "SELECT", "a": "INSERT", "w": "UPDATE", "d": "DELETE"}
"""Privileges by the letters that PostgreSQL uses in access control lists."""

WORKER = {
    "rune_migration": "r",
    "cluster": "raw",
    "definition": "ra",
    "execution": "raw",
    "fact": "ra",
    "claim": "ra",
    "outbox": "rawd",
    "dead_letter": "ra",
    "hook": "ra",
    "loop_block": "rawd",
    "client_key": "raw",
    "blob": "raw",
    "needs": "ra",
    "execution_term": "ra",
    "removed": "r",
    "version": "r",
    "version_source": "r",
    "alias": "r",
    "workflow": "r",
    "credential": "r",
    "credential_grant": "r",
    "workflow_trigger": "r",
    "log": "a",
}

SCHEDULER = WORKER | {
    "hook": "rawd",
    "handler_default": "r",
    "definition": "rad",
    "execution": "rawd",
    "fact": "rad",
    "claim": "rad",
    "dead_letter": "rad",
    "client_key": "rawd",
    "blob": "rawd",
    "needs": "rad",
    "execution_term": "rad",
    "removed": "rawd",
    "workflow_trigger": "rawd",
    "signed_delivery": "rd",
    "expectation": "rawd",
}

API = SCHEDULER | {
    "handler_default": "raw",
    "dead_letter": "rawd",
    "signed_delivery": "rad",
    "version": "rawd",
    "version_source": "raw",
    "alias": "rawd",
    "workflow": "rawd",
    "credential": "rawd",
    "credential_grant": "rawd",
    "api_key": "rawd",
    "session": "rad",
    "bulk_job": "rawd",
    "bulk_target": "rawd",
    "ended_count": "ra",
    "ended_count_range": "raw",
    "start_limit": "rawd",
    "limited_start": "rawd",
    "log": "ra",
}

ROLES: Mapping[str, Mapping[str, str]] = {
    "rune_worker": WORKER,
    "rune_scheduler": SCHEDULER,
    "rune_api": API,
}


async def migrate(dsn: str, steps: Sequence[tuple[str, str]] | None = None) -> list[str]:
    """Migrate a database to the version of this program and return the names of the applied steps. Concurrent
    migrations are safe. A database of a newer release is not changed."""
    wanted = migrations() if steps is None else steps
    try:
        connection = await asyncpg.connect(dsn)
        try:
            await _check_server(connection)
            await _create_migration_table(connection)
            names = [await _step(connection, number, wanted) for number in range(1, len(wanted) + 1)]
        finally:
            await connection.close()
    except DRIVER_ERRORS as error:
        raise map_error(error, redacted_url(dsn)) from error
    return [name for name in names if name is not None]


async def _add_terms(connection: Connection) -> None:
    """Add the terms that the executions of an older version are found by."""
    last = 0
    while rows := await connection.fetch(query("executions_to_index"), last):
        last = rows[-1]["n"]
        terms = [(term, row["n"]) for row in rows for term in stored_terms(row["accepted"], row["ending"])]
        await connection.execute(
            query("terms_insert"), [term for term, _ in terms], [number for _, number in terms]
        )
    await connection.execute(query("waiting_terms_insert"), WAITING)


async def _check_server(connection: Connection) -> None:
    """Reject an unsuitable server before anything is created on it."""
    version, encoding = await connection.fetchrow(query("server_version"))
    if version < MIN_SERVER_VERSION:
        raise DatabaseRefusedError(
            f"PostgreSQL {version // 10_000} is too old: Rune needs {MIN_SERVER_VERSION // 10_000} or newer"
        )
    if encoding != "UTF8":
        raise DatabaseRefusedError(
            f"the database is encoded as {encoding}: Rune needs one that is encoded as UTF8"
        )


async def _create_migration_table(connection: Connection) -> None:
    async with connection.transaction():
        await connection.execute(query("migration_lock"))
        await connection.execute(query("migration_table_create"))


async def _step(connection: Connection, number: int, steps: Sequence[tuple[str, str]]) -> str | None:
    name, text = steps[number - 1]
    deadline = time.monotonic() + LOCK_TIMEOUT_S
    while True:
        try:
            # crash here: the step and its row are both committed, or neither
            async with connection.transaction():
                await connection.execute(query("migration_lock"))
                version = await connection.fetchval(query("migration_version"))
                if version > len(steps):
                    raise NewerFormatError(
                        f"the schema has version {version}, this Rune knows up to {len(steps)}"
                    )
                if version >= number:
                    return None
                await connection.execute(text)
                if name.startswith(SEARCH):
                    await _add_terms(connection)
                await connection.execute(query("migration_record"), number, name)
                return name
        except asyncpg.LockNotAvailableError:
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(_RETRY_DELAY_S)


async def grant(dsn: str) -> list[str]:
    """Grant the roles exactly their privileges and return their names. One transaction, so that running processes never
    see a role without privileges."""
    try:
        connection = await asyncpg.connect(dsn)
        try:
            async with connection.transaction():
                await connection.execute(query("migration_lock"))
                await _require_roles(connection)
                for role, tables in ROLES.items():
                    for statement in statements(role, tables):
                        await connection.execute(statement)
        finally:
            await connection.close()
    except DRIVER_ERRORS as error:
        raise map_error(error, redacted_url(dsn)) from error
    return list(ROLES)


async def _require_roles(connection: Connection) -> None:
    """Raise if a role is missing. Creating roles needs a privilege that a migration should not have."""
    rows = await connection.fetch(query("existing_roles"), list(ROLES))
    missing = sorted(set(ROLES) - {row["rolname"] for row in rows})
    if missing:
        commands = "; ".join(f"CREATE ROLE {each} LOGIN" for each in missing)
        raise DatabaseRefusedError(
            f"there is no role {', '.join(missing)}: have an administrator run `{commands}`"
        )


def statements(role: str, tables: Mapping[str, str]) -> list[str]:
    """Return the statements that give a role exactly these privileges. All names are constants of this module, so none
    needs quoting."""
    grants = [
        f"GRANT {', '.join(PRIVILEGES[letter] for letter in letters)} ON {table} TO {role}"
        for table, letters in tables.items()
    ]
    return [
        f"REVOKE ALL ON ALL TABLES IN SCHEMA public FROM {role}",
        f"REVOKE ALL ON ALL SEQUENCES IN SCHEMA public FROM {role}",
        *grants,
        # ON CONFLICT (id) of an audit entry that is sent twice reads this column.
        f"GRANT SELECT (id) ON log TO {role}",
        f"GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO {role}",
    ]


async def rights(database: Database) -> dict[str, Any]:
    """Return what the user of the connection may do, by the field names of the inspection."""
    ((user, can_create, _),) = await database.fetch(query("session"))
    rows = await database.fetch(query("table_privileges"))
    have = {table: set(letters) for table, letters, _ in rows}
    able = [role for role, needs in ROLES.items() if not _missing_rights(have, needs)]
    return {
        "journal_user": user,
        "journal_roles": tuple(role.removeprefix("rune_") for role in able),
        "journal_lacks": () if able else tuple(_missing_rights(have, ROLES["rune_worker"])),
        "may_migrate": can_create and all(owns for _, _, owns in rows),
    }


def _missing_rights(have: Mapping[str, set[str]], needs: Mapping[str, str]) -> list[str]:
    """Return missing privileges on existing tables; missing tables are reported by the schema version."""
    return [
        f"{PRIVILEGES[letter]} on {table}"
        for table, letters in needs.items()
        for letter in letters
        if table in have and letter not in have[table]
    ]


async def inspect(database: Database) -> dict[str, Any]:
    """Return facts about the server and its schema, by the field names of the inspection."""
    ((version, fsync),) = await database.fetch(query("server_settings"))
    ((known,),) = await database.fetch(query("migration_table_exists"))
    schema = (await database.fetch(query("migration_version")))[0][0] if known else 0
    return {
        "postgres": version,
        "fsync": fsync == "on",
        "schema": schema,
        "known_schema": len(migrations()),
    }
