"""What the user of a connection may do, beside what each role needs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rune.adapters.postgres.database import Database
from rune.adapters.postgres.roles import ROLES, VERBS
from rune.adapters.postgres.sql import query


async def rights(database: Database) -> dict[str, Any]:
    """Findings, by the names that a survey has for them."""
    ((user, makes, _),) = await database.fetch(query("standing"))
    rows = await database.fetch(query("rights"))
    have = {table: set(letters) for table, letters, _ in rows}
    able = [role for role, needs in ROLES.items() if not _lacking(have, needs)]
    return {
        "journal_user": user,
        "journal_roles": tuple(role.removeprefix("rune_") for role in able),
        "journal_lacks": () if able else tuple(_lacking(have, ROLES["rune_worker"])),
        "may_migrate": makes and all(owns for _, _, owns in rows),
    }


def _lacking(have: Mapping[str, set[str]], needs: Mapping[str, str]) -> list[str]:
    """Of the tables that are there: one that is missing is for the schema to tell."""
    return [
        f"{VERBS[letter]} on {table}"
        for table, letters in needs.items()
        for letter in letters
        if table in have and letter not in have[table]
    ]
