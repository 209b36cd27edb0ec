"""Read-only access to the database file for processes other than its owner, which can write at the same time."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any

from rune.adapters.private_files import restrict_file
from rune.adapters.rows import summary_of
from rune.adapters.sqlite.database import MIGRATIONS, Database, WriteFunction
from rune.codec.facts import decode_path
from rune.core.execution.token import Path as LineagePath
from rune.ports.journal import NewerFormatError, StoreUnavailableError
from rune.ports.queries import ALL_EXECUTIONS, STATUSES, ExecutionFilter, Summary

EMPTY = "EMPTY_STORE"
"""Error code for a file without a schema, because nothing was ever written."""

MAX_ROWS = 2**63 - 1
_COLUMNS = "id, workflow, hash, status, at, ended_at, accepted, end"
_NEWEST = "n < :before ORDER BY n DESC LIMIT :limit"


@cache
def list_statement(by_status: bool, by_workflow: bool) -> str:
    """Return the statement for a page of executions.

    The index on workflow and status also serves pages of a workflow with any status: the newest of each status are
    selected, and the newest of those returned.
    """
    head = f"SELECT {_COLUMNS} FROM execution WHERE"
    if not by_workflow:
        return f"{head} {'status = :status AND ' if by_status else ''}{_NEWEST}"
    if by_status:
        return f"{head} workflow = :workflow AND status = :status AND {_NEWEST}"
    each = (
        f"SELECT * FROM (SELECT n FROM execution WHERE workflow = :workflow AND status = '{status}' AND {_NEWEST})"
        for status in STATUSES
    )
    return f"{head} n IN ({' UNION ALL '.join(each)}) ORDER BY n DESC LIMIT :limit"


class ReadOnlyDatabase(Database):
    """The database file opened for reading. A missing or empty file is an error."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._relaxed = True
        self.opened = 0
        restrict_file(path)
        self.reader = self._connect(read_only=True)
        (version,) = self._read_row("PRAGMA user_version")
        if version > len(MIGRATIONS):
            self.reader.close()
            raise NewerFormatError(
                f"{path} has schema version {version}; this version of Rune supports up to {len(MIGRATIONS)}"
            )
        if version == 0:
            self.reader.close()
            raise StoreUnavailableError(f"{path} contains no executions yet", code=EMPTY)

    def _read_row(self, statement: str) -> tuple[int]:
        try:
            row: tuple[int] = self.reader.execute(statement).fetchone()
        except sqlite3.Error as error:
            raise StoreUnavailableError(f"cannot read {self.path}: {error}") from error
        return row

    def submit(self, work: WriteFunction) -> asyncio.Future[Any]:
        raise StoreUnavailableError(f"{self.path} is open for reading only")

    async def version(self) -> int:
        """Return a number that changes whenever another process writes to the file."""
        return self._read_row("PRAGMA data_version")[0]

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[None]:
        """Context in which all reads see the same state of the file."""
        self.reader.execute("BEGIN")
        try:
            yield
        finally:
            self.reader.execute("COMMIT")

    def close(self) -> None:
        self.reader.close()


class SqliteIndex:
    """Queries for lists of executions."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def executions(
        self, wanted: ExecutionFilter = ALL_EXECUTIONS, *, after: str | None = None, limit: int = 50
    ) -> list[Summary]:
        before: int | None = MAX_ROWS
        if after is not None:
            found = self._database.reader.execute("SELECT n FROM execution WHERE id = ?", (after,)).fetchone()
            before = found[0] if found else None
        statement = list_statement(wanted.status is not None, wanted.workflow is not None)
        values = {"status": wanted.status, "workflow": wanted.workflow, "before": before, "limit": limit}
        rows = self._database.reader.execute(statement, values)
        return [summary_of(row) for row in rows]

    async def execution(self, execution: str) -> Summary | None:
        row = self._database.reader.execute(
            f"SELECT {_COLUMNS} FROM execution WHERE id = ?", (execution,)
        ).fetchone()
        return summary_of(row) if row else None

    async def matching(self, prefix: str, limit: int) -> list[str]:
        """Return at most `limit` ids that start with a prefix."""
        rows = self._database.reader.execute(
            "SELECT id FROM execution WHERE id >= ? AND id < ? ORDER BY id LIMIT ?",
            (prefix, prefix + "\U0010ffff", limit),
        )
        return [row[0] for row in rows]

    async def claims(self, execution: str) -> dict[tuple[int, LineagePath], int]:
        """Return how often each token of an execution was claimed."""
        rows = self._database.reader.execute(
            "SELECT node, path, count(*) FROM claim WHERE execution = (SELECT n FROM execution WHERE id = ?)"
            " GROUP BY node, path",
            (execution,),
        )
        return {(node, decode_path(path)): count for node, path, count in rows}
