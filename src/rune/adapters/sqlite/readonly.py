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
from rune.adapters.rows import list_page, summary_of
from rune.adapters.search import Dialect, ExecutionSearch, ExecutionStatistics, is_listed
from rune.adapters.sqlite.database import MIGRATIONS, Database, WriteFunction, store_error
from rune.codec.facts import decode_fact, decode_path
from rune.core.execution.token import Path as LineagePath
from rune.ports.journal import NewerFormatError, StoreUnavailableError
from rune.ports.queries import ALL_EXECUTIONS, STATUSES, ExecutionFilter, ExecutionsFound, Summary

EMPTY = "EMPTY_STORE"
"""Error code for a file without a schema, because nothing was ever written."""

MAX_ROWS = 2**63 - 1
_COLUMNS = "id, workflow, hash, status, at, ended_at, accepted, end"
_SEARCHED = "x.id, x.workflow, x.hash, x.status, x.at, x.ended_at, x.accepted, x.end"
_HAS_FAILED_ITEMS = "instr(end, CAST('failed_items' AS BLOB)) > 0 AND "
_NEWEST = "n < :before ORDER BY n DESC LIMIT :limit"


@cache
def list_statement(
    statuses: tuple[str, ...], *, by_workflow: bool = False, by_hash: bool = False, failed_items: bool = False
) -> str:
    """Return the statement for a page of executions.

    The index on workflow and status also serves pages of a workflow with any status: the newest of each status are
    selected, and the newest of those returned.
    """
    head = f"SELECT {_COLUMNS} FROM execution WHERE"
    tail = f"{'hash = :hash AND ' if by_hash else ''}{_HAS_FAILED_ITEMS if failed_items else ''}{_NEWEST}"
    of = "workflow = :workflow AND " if by_workflow else ""
    selected = [each for each in STATUSES if each in statuses or (by_workflow and not statuses)]
    if not statuses and not by_workflow:
        return f"{head} {tail}"
    if len(selected) == 1:
        return f"{head} {of}status = '{selected[0]}' AND {tail}"
    each = (
        f"SELECT * FROM (SELECT n FROM execution WHERE {of}status = '{name}' AND {tail})" for name in selected
    )
    return f"{head} n IN ({' UNION ALL '.join(each)}) ORDER BY n DESC LIMIT :limit"


DIALECT = Dialect(like=lambda scope: ("GLOB {}", scope))


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
            raise store_error(self.path, error, "cannot read ") from error
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
            if self.reader.in_transaction:  # an error of the file may have ended it
                self.reader.execute("COMMIT")

    def close(self) -> None:
        self.reader.close()


class SqliteIndex:
    """Queries for lists of executions."""

    def __init__(self, database: Database) -> None:
        self._database = database
        search = ExecutionSearch(self._fetch, _SEARCHED, summary_of, DIALECT)
        self._search = search
        self.count = search.count
        self.statistics = ExecutionStatistics(self._fetch, DIALECT)

    async def search(
        self, wanted: ExecutionFilter, *, after: str | None = None, limit: int = 50
    ) -> ExecutionsFound:
        return await self._search.find(wanted, after=after, limit=limit)

    async def _fetch(self, statement: str, values: list[Any]) -> list[tuple[Any, ...]]:
        return self._database.reader.execute(statement.replace("{}", "?"), values).fetchall()

    async def executions(
        self, wanted: ExecutionFilter = ALL_EXECUTIONS, *, after: str | None = None, limit: int = 50
    ) -> list[Summary]:
        if not is_listed(wanted):
            return await self._search.all(wanted, after=after, limit=limit)
        return await list_page(lambda start, most: self._page(wanted, start, most), wanted, after, limit)

    async def _page(self, wanted: ExecutionFilter, after: str | None, limit: int) -> list[Summary]:
        before: int | None = MAX_ROWS
        if after is not None:
            found = self._database.reader.execute("SELECT n FROM execution WHERE id = ?", (after,)).fetchone()
            before = found[0] if found else None
        statement = list_statement(
            wanted.statuses,
            by_workflow=wanted.workflow is not None,
            by_hash=wanted.hash is not None,
            failed_items=wanted.failed_items,
        )
        values = {"workflow": wanted.workflow, "hash": wanted.hash, "before": before, "limit": limit}
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

    async def last_progress(self, execution: str) -> int | None:
        """Return the time of the newest row of an execution."""
        row = self._database.reader.execute(
            "SELECT body FROM fact WHERE execution = (SELECT n FROM execution WHERE id = ?)"
            " ORDER BY seq DESC LIMIT 1",
            (execution,),
        ).fetchone()
        return None if row is None else decode_fact(row[0]).at

    async def claims(self, execution: str) -> dict[tuple[int, LineagePath], int]:
        """Return how often each token of an execution was claimed."""
        rows = self._database.reader.execute(
            "SELECT node, path, count(*) FROM claim WHERE execution = (SELECT n FROM execution WHERE id = ?)"
            " GROUP BY node, path",
            (execution,),
        )
        return {(node, decode_path(path)): count for node, path, count in rows}
