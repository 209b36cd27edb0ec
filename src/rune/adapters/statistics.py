"""Counts of executions, shared by the SQL adapters. Every statement reads a bounded part of one index."""

from __future__ import annotations

from rune.adapters.search import Fetch
from rune.ports.queries import STATUSES, RecentExecution, StatusCount

# The names of all workflows, each found by one step in an index that begins with the workflow.
_WORKFLOWS = (
    "WITH RECURSIVE w (id) AS (SELECT (SELECT min(workflow) FROM execution) UNION ALL"
    " SELECT (SELECT min(e.workflow) FROM execution AS e WHERE e.workflow > w.id) FROM w WHERE w.id IS NOT NULL)"
)
_ENDED = (
    f"{_WORKFLOWS} SELECT e.workflow, e.status, count(*) FROM w CROSS JOIN execution AS e"
    " WHERE w.id IS NOT NULL AND e.workflow = w.id AND e.ended_at IS NOT NULL AND e.ended_at >= {} AND e.ended_at < {}"
    " GROUP BY e.workflow, e.status"
)
_OPEN = (
    "SELECT workflow, status, count(*) FROM execution WHERE status IN ('running', 'paused')"
    " GROUP BY workflow, status"
)
_DURATIONS = (
    "SELECT ended_at - at FROM execution WHERE workflow = {} AND ended_at IS NOT NULL"
    " ORDER BY ended_at DESC, n DESC LIMIT {}"
)
_NEWEST = (
    "SELECT * FROM (SELECT n, id, status, at, ended_at FROM execution WHERE workflow = {} AND status = {}"
    " ORDER BY n DESC LIMIT {}) AS r"
)


class ExecutionStatistics:
    """Counts the executions of one database."""

    def __init__(self, fetch: Fetch) -> None:
        self._fetch = fetch

    async def ended(self, since: int, until: int) -> list[StatusCount]:
        """Count the executions that ended in a period, by workflow and status."""
        return [StatusCount(*row) for row in await self._fetch(_ENDED, [since, until])]

    async def open(self) -> list[StatusCount]:
        """Count the executions that have not ended, by workflow and status."""
        return [StatusCount(*row) for row in await self._fetch(_OPEN, [])]

    async def recent(self, workflow: str, limit: int) -> list[RecentExecution]:
        """Return the newest executions of a workflow, newest first."""
        values: list[object] = [each for status in STATUSES for each in (workflow, status, limit)]
        rows = await self._fetch(" UNION ALL ".join([_NEWEST] * len(STATUSES)), values)
        newest = sorted(rows, key=lambda row: -row[0])[:limit]
        return [RecentExecution(*row[1:]) for row in newest]

    async def durations(self, workflow: str, limit: int) -> list[int]:
        """Return how long the executions of a workflow that ended last took, in ms."""
        return [max(0, int(row[0])) for row in await self._fetch(_DURATIONS, [workflow, limit])]
