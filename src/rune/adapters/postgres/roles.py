"""Roles: who may do what with which table. The owner, who migrates, is nobody of these and may do everything.

What runs under a role changes no schema, and a worker that is taken over reads no key of the API and rewrites neither
credentials nor the log.

What the user of a connection may do, beside what each role needs.

What a server and its database tell to somebody who takes no part.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import asyncpg  # type: ignore[import-untyped]

from rune.adapters.postgres.database import (
    Connection,
    Database,
    DatabaseRefusedError,
    Driver,
    map_error,
    migrations,
    place,
    query,
)

VERBS = {"r": "SELECT", "a": "INSERT", "w": "UPDATE", "d": "DELETE"}
"""The letters that PostgreSQL itself has for them."""

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
    "removed": "r",
    "version": "r",
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
    "removed": "rawd",
    "workflow_trigger": "rawd",
    "signed_delivery": "rd",
}
API = SCHEDULER | {
    "dead_letter": "rawd",
    "signed_delivery": "rad",
    "version": "rawd",
    "alias": "rawd",
    "workflow": "rawd",
    "credential": "rawd",
    "credential_grant": "rawd",
    "api_key": "rawd",
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
    """Give the roles their rights, and take from them what they have beyond; answers their names. Whoever works
    meanwhile notices nothing: it is one transaction."""
    try:
        connection = await asyncpg.connect(dsn)
        try:
            async with connection.transaction():
                await connection.execute(query("migration_lock"))
                await _roles_exist(connection)
                for role, tables in ROLES.items():
                    for statement in statements(role, tables):
                        await connection.execute(statement)
        finally:
            await connection.close()
    except Driver as error:
        raise map_error(error, place(dsn)) from error
    return list(ROLES)


async def _roles_exist(connection: Connection) -> None:
    """Making roles takes rights that no migration should have."""
    rows = await connection.fetch(query("roles"), list(ROLES))
    missing = sorted(set(ROLES) - {row["rolname"] for row in rows})
    if missing:
        made = "; ".join(f"CREATE ROLE {each} LOGIN" for each in missing)
        raise DatabaseRefusedError(
            f"there is no role {', '.join(missing)}: have an administrator do `{made}`"
        )


def statements(role: str, tables: Mapping[str, str]) -> list[str]:
    """What gives a role exactly these rights. Names and letters are those above, so nothing has to be quoted."""
    listed = [
        f"GRANT {', '.join(VERBS[letter] for letter in letters)} ON {table} TO {role}"
        for table, letters in tables.items()
    ]
    return [
        f"REVOKE ALL ON ALL TABLES IN SCHEMA public FROM {role}",
        f"REVOKE ALL ON ALL SEQUENCES IN SCHEMA public FROM {role}",
        *listed,
        f"GRANT SELECT (id) ON log TO {role}",  # what is written twice is noticed by it
        f"GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO {role}",
    ]


async def rights(database: Database) -> dict[str, Any]:
    """Findings, by the names that a survey has for them."""
    ((user, makes, _),) = await database.fetch(query("standing"))
    rows = await database.fetch(query("rights"))
    have = {table: set(letters) for table, letters, _ in rows}
    able = [role for role, needs in ROLES.items() if not _missing_rights(have, needs)]
    return {
        "journal_user": user,
        "journal_roles": tuple(role.removeprefix("rune_") for role in able),
        "journal_lacks": () if able else tuple(_missing_rights(have, ROLES["rune_worker"])),
        "may_migrate": makes and all(owns for _, _, owns in rows),
    }


def _missing_rights(have: Mapping[str, set[str]], needs: Mapping[str, str]) -> list[str]:
    """Of the tables that are there: one that is missing is for the schema to tell."""
    return [
        f"{VERBS[letter]} on {table}"
        for table, letters in needs.items()
        for letter in letters
        if table in have and letter not in have[table]
    ]


async def inspect(database: Database) -> dict[str, Any]:
    """Findings, by the names that a survey has for them."""
    ((version, fsync),) = await database.fetch(query("inspect"))
    ((known,),) = await database.fetch(query("migration_known"))
    schema = (await database.fetch(query("migration_last")))[0][0] if known else 0
    return {
        "postgres": version,
        "fsync": fsync == "on",
        "schema": schema,
        "known_schema": len(migrations()),
    }
