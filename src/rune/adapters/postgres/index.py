"""Executions as a list, and the claims of one."""

from __future__ import annotations

from typing import Any

from rune.adapters.postgres.database import Database
from rune.adapters.postgres.sql import query
from rune.adapters.rowforms import summary_of
from rune.core.lineage import Path
from rune.ports.store import ALL, STATUSES, Summary, Wanted
from rune.wire.codec import decode_path


class PostgresIndex:
    """Reads only."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def executions(
        self, wanted: Wanted = ALL, *, after: str | None = None, limit: int = 50
    ) -> list[Summary]:
        """Newest first, behind a given id."""
        name = "executions"
        values: list[Any] = []
        if wanted.workflow is not None:
            statuses = STATUSES if wanted.status is None else (wanted.status,)
            name, values = "executions_of_workflow", [wanted.workflow, statuses]
        elif wanted.status is not None:
            name, values = "executions_of_status", [wanted.status]
        rows = await self._database.look(query(name), after, limit, *values)
        return [summary_of(tuple(row)) for row in rows]

    async def execution(self, execution: str) -> Summary | None:
        """One execution."""
        row = await self._database.find(query("execution"), execution)
        return summary_of(tuple(row)) if row is not None else None

    async def matching(self, prefix: str, limit: int) -> list[str]:
        """Ids that begin like this, at most so many."""
        rows = await self._database.look(query("matching"), prefix, prefix + "\U0010ffff", limit)
        return [row["id"] for row in rows]

    async def claims(self, execution: str) -> dict[tuple[int, Path], int]:
        """How often each token was claimed."""
        rows = await self._database.look(query("claims"), execution)
        return {(node, decode_path(path)): count for node, path, count in rows}
