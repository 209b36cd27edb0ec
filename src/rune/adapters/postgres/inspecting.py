"""What a server and its database tell to somebody who takes no part."""

from __future__ import annotations

from typing import Any

from rune.adapters.postgres.database import Database
from rune.adapters.postgres.sql import migrations, query


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
