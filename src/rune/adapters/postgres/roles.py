"""Database roles and their privileges per table, and inspection of a server for `rune doctor`.

The owner of the schema runs migrations and is none of these roles. No role can change the schema, and a compromised
worker can read no API keys and change neither credentials nor the audit log.
"""

from __future__ import annotations

from collections.abc import Mapping
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

PRIVILEGES = {"r": "SELECT", "a": "INSERT", "w": "UPDATE", "d": "DELETE"}
"""Privileges by the letters that PostgreSQL uses in access control lists."""

WORKER = {
    "rune_migration": "r",
    "definition": "ra",
    "execution": "raw",
    "fact": "ra",
    "claim": "ra",
    "outbox": "rawd",
    "dead_letter": "ra",
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
}
API = SCHEDULER | {
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
    "start_limit": "rawd",
    "limited_start": "rawd",
    "log": "ra",
}
ROLES: Mapping[str, Mapping[str, str]] = {
    "rune_worker": WORKER,
    "rune_scheduler": SCHEDULER,
    "rune_api": API,
}


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
