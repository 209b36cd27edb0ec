"""Search for executions and their counts, shared by the SQL adapters.

Executions are numbered in the order of their starts, so every index that ends with the number yields the newest first.
A page is read along one source, the one with the fewest rows, and the other conditions are checked row by row. At most
MAX_SCANNED rows of the source are read for a page; a page may therefore be short and still have a successor. Every
statement that counts reads a bounded part of one index.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from rune.adapters.rows import FAILED_ITEMS, WAITING, label_term, search_term
from rune.core.permissions import LOCAL
from rune.ports.queries import (
    STATUSES,
    ExecutionCount,
    ExecutionFilter,
    ExecutionsFound,
    RecentExecution,
    StatusCount,
    StoredCounts,
    Summary,
)

MAX_SCANNED = 5_000
FIRST_SCANNED = 4  # rows per result that are read first
MAX_PROBED = 1_000  # rows that are counted in order to compare two sources
MAX_COUNTED = 10_000
CLOCK_SKEW_MS = 60_000  # between processes that number their starts one after another
MAX_NUMBER = 2**63 - 1

_LOW = "CASE WHEN s.at < {} THEN (s.low + s.high) / 2 + 1 ELSE s.low END"
_HIGH = "CASE WHEN s.at < {} THEN s.high ELSE (s.low + s.high) / 2 END"
_AT = "(SELECT e.at FROM execution AS e WHERE e.n >= (LOW + HIGH) / 2 ORDER BY e.n LIMIT 1)"
_FIRST_SINCE = (
    "WITH RECURSIVE bounds (low, high) AS ("
    "SELECT (SELECT n FROM execution ORDER BY n LIMIT 1),"
    " (SELECT n FROM execution ORDER BY n DESC LIMIT 1) + 1"
    "), s (low, high, at) AS ("
    f"SELECT b.low, b.high, {_AT.replace('LOW', 'b.low').replace('HIGH', 'b.high')} FROM bounds AS b"
    f" UNION ALL SELECT {_LOW}, {_HIGH}, {_AT.replace('LOW', _LOW).replace('HIGH', _HIGH)} FROM s"
    " WHERE s.low < s.high"
    ") SELECT low FROM s WHERE low >= high"
)
"""The first number whose execution started at `{}` or later, in one statement: `low` and `high` enclose it, and `at` is
the time in their middle."""

Fetch = Callable[[str, list[Any]], Awaitable[Sequence[Sequence[Any]]]]
"""Runs a statement whose parameters are written as `{}`."""

List = Callable[[str, list[Any]], Awaitable[list[Summary]]]
"""Runs such a statement that selects the columns of a list."""

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

_RANGE = "SELECT low, high FROM ended_count_range"
_STORED = (
    "SELECT bucket - bucket % {} AS step, workflow, status, sum(count) FROM ended_count"
    " WHERE bucket >= {} AND bucket < {} GROUP BY 1, workflow, status"
)

_FIRST_END = (
    f"{_WORKFLOWS} SELECT min((SELECT min(e.ended_at) FROM execution AS e WHERE e.workflow = w.id"
    " AND e.ended_at IS NOT NULL)) FROM w WHERE w.id IS NOT NULL"
)

_OPEN = (
    "SELECT workflow, status, count(*) FROM execution WHERE status IN ('running', 'paused')"
    " GROUP BY workflow, status"
)

_DURATIONS = (
    "SELECT ended_at - at FROM execution WHERE workflow = {} AND ended_at IS NOT NULL"
    " ORDER BY ended_at DESC, n DESC LIMIT {}"
)


class Conditions(msgspec.Struct):
    """Conditions on a row of `execution`, all of which must hold."""

    texts: list[str] = []
    values: list[Any] = []

    def add(self, text: str, *values: Any) -> None:
        self.texts.append(text)
        self.values += values

    def sql(self) -> str:
        return "".join(f" AND {text}" for text in self.texts)


class Bounds(msgspec.Struct, frozen=True):
    """The numbers between which the executions of a period are. The clocks of processes differ, so the bounds are wider
    than the period, and times are compared too."""

    floor: int
    before: int
    period: Conditions


class Dialect(msgspec.Struct, frozen=True):
    """Where the databases differ. `like` compares a workflow with a scope: it returns the operator and the value.

    `by_leading_column`: a range is compared and ordered such that only an index on its columns yields the order. The
    planner of PostgreSQL otherwise reads all executions by number, newest first, and skips those outside of the range,
    because it does not know that a status or workflow may occur only among the oldest, or not at all.
    """

    like: Callable[[str], tuple[str, str]]
    by_leading_column: bool = False


class Range(msgspec.Struct, frozen=True):
    """The rows that have these values in these columns. An index on the columns yields them by number."""

    columns: tuple[str, ...] = ()
    values: tuple[Any, ...] = ()
    table: str = "execution"

    def newest(
        self, selected: str, within: Conditions, limit: int, dialect: Dialect
    ) -> tuple[str, list[Any]]:
        """Return the statement for the newest rows within further conditions."""
        rows = Conditions([f"{column} = {{}}" for column in self.columns], [*self.values])
        order = "n DESC"
        if dialect.by_leading_column and self.columns:
            leading = self.columns[0]
            rows.texts[0], rows.values[0] = f"{leading} = ANY ({{}})", [self.values[0]]
            order = f"{leading} DESC, n DESC"
        where = " AND ".join([*rows.texts, *within.texts]) or "n > 0"
        text = f"SELECT {selected} FROM {self.table} WHERE {where} ORDER BY {order} LIMIT {{}}"
        return f"SELECT * FROM ({text}) AS r", [*rows.values, *within.values, limit]


class Source(msgspec.Struct, frozen=True):
    """A way to read numbers of executions, newest first: one or several ranges. `sorted`: the rows of a range are in an
    index in the order of the numbers. `covers`: the fields of the filter that all its executions match. A source
    without a term reads the rows of executions, and skips those outside of the period itself."""

    ranges: tuple[Range, ...]
    sorted: bool = True
    covers: frozenset[str] = frozenset()
    term: str | None = None

    def statement(self, limit: int, bounds: Bounds, dialect: Dialect) -> tuple[str, list[Any]]:
        """Return the statement for the newest numbers within bounds."""
        period = bounds.period if self.term is None else Conditions([], [])
        within = Conditions(
            ["n >= {}", "n < {}", *period.texts], [bounds.floor, bounds.before, *period.values]
        )
        parts: list[str] = []
        values: list[Any] = []
        for each in self.ranges:
            text, given = each.newest("n", within, limit, dialect)
            parts.append(text)
            values += given
        merged = " UNION ALL ".join(parts)
        if len(parts) > 1:
            merged = f"SELECT n FROM ({merged}) AS u ORDER BY n DESC LIMIT {{}}"
            values.append(limit)
        return merged, values


ALL = Source((Range(),))


_LISTED = frozenset({"statuses", "workflow", "hash", "failed_items"})


def is_listed(wanted: ExecutionFilter) -> bool:
    """Return whether a filter needs no search: files of older versions have no terms."""
    empty = ExecutionFilter()
    return all(
        name in _LISTED or getattr(wanted, name) == getattr(empty, name)
        for name in ExecutionFilter.__struct_fields__
    )


def terms_of(wanted: ExecutionFilter) -> list[str]:
    """Return the terms that an execution must have."""
    found = [label_term(name, value) for name, value in wanted.labels.items()]
    if wanted.code is not None:
        found.append(search_term("code", wanted.code))
    if wanted.principal is not None and wanted.principal != LOCAL:
        found.append(search_term("principal", wanted.principal))
    if wanted.retry_of is not None:
        found.append(search_term("retry_of", wanted.retry_of))
    if wanted.waiting:
        found.append(WAITING)
    return [*found, FAILED_ITEMS] if wanted.failed_items else found


def sources_of(wanted: ExecutionFilter) -> list[Source]:
    """Return the ways to read the executions of a filter."""
    found = [Source((Range(("term",), (term,), "execution_term"),), term=term) for term in terms_of(wanted)]
    if wanted.parent is not None:
        found.append(Source((Range(("parent",), (wanted.parent,)),), covers=frozenset({"parent"})))
    if wanted.workflow is not None:
        ranges = of_workflow(wanted.workflow, wanted.statuses or STATUSES)
        found.append(Source(ranges, covers=frozenset({"workflow", "statuses"})))
    elif wanted.statuses:
        ranges = tuple(Range(("status",), (status,)) for status in wanted.statuses)
        found.append(Source(ranges, covers=frozenset({"statuses"})))
    if wanted.hash is not None:
        found.append(Source((Range(("hash",), (wanted.hash,)),), sorted=False, covers=frozenset({"hash"})))
    return found


def of_workflow(workflow: str, statuses: Sequence[str]) -> tuple[Range, ...]:
    """Return the ranges of a workflow, one per status."""
    return tuple(Range(("workflow", "status"), (workflow, status)) for status in statuses)


def conditions_of(wanted: ExecutionFilter, source: Source, dialect: Dialect) -> Conditions:
    """Return the conditions of a filter that its source does not cover."""
    found = Conditions([], [])
    for term in terms_of(wanted):
        if term == source.term:
            continue
        found.add("EXISTS (SELECT 1 FROM execution_term AS t WHERE t.term = {} AND t.n = x.n)", term)
    if wanted.principal == LOCAL:
        found.add(
            "NOT EXISTS (SELECT 1 FROM execution_term AS t WHERE t.n = x.n AND t.term >= 'principal:'"
            " AND t.term < 'principal;')"
        )
    if wanted.parent is not None and "parent" not in source.covers:
        found.add("x.parent = {}", wanted.parent)
    if wanted.workflow is not None and "workflow" not in source.covers:
        found.add("x.workflow = {}", wanted.workflow)
    if wanted.statuses and "statuses" not in source.covers:
        found.add(f"x.status IN ({', '.join(['{}'] * len(wanted.statuses))})", *wanted.statuses)
    if wanted.hash is not None and "hash" not in source.covers:
        found.add("x.hash = {}", wanted.hash)
    if source.term is not None:
        period = period_of(wanted, "x.at")
        found.texts += period.texts
        found.values += period.values
    if wanted.scopes:
        compared = [dialect.like(each) for each in wanted.scopes]
        text = " OR ".join(f"x.workflow {operator}" for operator, _ in compared)
        found.add(f"({text})", *(value for _, value in compared))
    return found


def period_of(wanted: ExecutionFilter, column: str) -> Conditions:
    """Return the conditions of a filter on the time of the start."""
    found = Conditions([], [])
    if wanted.since is not None:
        found.add(f"{column} >= {{}}", wanted.since)
    if wanted.until is not None:
        found.add(f"{column} < {{}}", wanted.until)
    return found


class ExecutionSearch:
    """Searches the executions of one database."""

    def __init__(
        self,
        fetch: Fetch,
        list: List,
        columns: str,
        dialect: Dialect,
    ) -> None:
        self._fetch = fetch
        self._list = list
        self._columns = columns
        self._dialect = dialect

    async def find(self, wanted: ExecutionFilter, *, after: str | None, limit: int) -> ExecutionsFound:
        """Return a page of executions, newest first, and the id to continue after."""
        before = await self._number_of(after) if after is not None else MAX_NUMBER
        if before is None:
            return ExecutionsFound([], None)
        bounds = await self._bounds(wanted, before)
        source = await self._choose(wanted, bounds)
        conditions = conditions_of(wanted, source, self._dialect)
        # Most pages are full after a few rows.
        for size in dict.fromkeys((min(MAX_SCANNED, FIRST_SCANNED * (limit + 1)), MAX_SCANNED)):
            scanned, values = source.statement(size, bounds, self._dialect)
            found = await self._list(
                f"SELECT {self._columns} FROM ({scanned}) AS s CROSS JOIN execution AS x WHERE x.n = s.n"
                f"{conditions.sql()} ORDER BY s.n DESC LIMIT {{}}",
                [*values, *conditions.values, limit + 1],
            )
            if len(found) > limit:
                return ExecutionsFound(found[:limit], found[limit - 1].id)
            last = await self._last_scanned(scanned, values, size)
            if last is None:
                break
        return ExecutionsFound(found, last)

    async def all(self, wanted: ExecutionFilter, *, after: str | None, limit: int) -> list[Summary]:
        """Return executions, newest first, however many have to be read for them."""
        found: list[Summary] = []
        while True:
            page = await self.find(wanted, after=after, limit=limit - len(found))
            found += page.executions
            after = page.next
            if after is None or len(found) >= limit:
                return found

    async def _last_scanned(self, scanned: str, values: list[Any], size: int) -> str | None:
        """Return the id of the last execution that was read, unless all were."""
        ((count, last),) = await self._fetch(f"SELECT count(*), min(s.n) FROM ({scanned}) AS s", values)
        if count < size:
            return None
        rows = await self._fetch("SELECT id FROM execution WHERE n = {}", [last])
        return str(rows[0][0]) if rows else None

    async def count(self, wanted: ExecutionFilter) -> ExecutionCount:
        """Count executions. Many are estimated from the share of the newest ones that match."""
        bounds = await self._bounds(wanted)
        source = await self._choose(wanted, bounds)
        scanned, values = source.statement(MAX_COUNTED, bounds, self._dialect)
        conditions = conditions_of(wanted, source, self._dialect)
        ((read, last),) = await self._fetch(f"SELECT count(*), min(s.n) FROM ({scanned}) AS s", values)
        matching = read
        if conditions.texts:
            text = f"SELECT count(*) FROM ({scanned}) AS s CROSS JOIN execution AS x WHERE x.n = s.n{conditions.sql()}"
            ((matching,),) = await self._fetch(text, [*values, *conditions.values])
        if read < MAX_COUNTED:
            return ExecutionCount(matching, exact=True)
        ((first, newest),) = await self._fetch(
            "SELECT (SELECT n FROM execution WHERE n >= {} ORDER BY n LIMIT 1),"
            " (SELECT n FROM execution WHERE n < {} ORDER BY n DESC LIMIT 1)",
            [bounds.floor, bounds.before],
        )
        share = (newest - first + 1) / max(1, newest - last + 1)
        return ExecutionCount(round(matching * share), exact=False)

    async def _choose(self, wanted: ExecutionFilter, bounds: Bounds) -> Source:
        """Return the source with the fewest rows. A range that is not in order is used only if it is short."""
        sources = sources_of(wanted)
        if not sources:
            return ALL
        if len(sources) == 1 and sources[0].sorted:
            return sources[0]
        counted: list[tuple[int, int]] = []
        for place, source in enumerate(sources):
            text, values = source.statement(MAX_PROBED, bounds, self._dialect)
            if not source.sorted:
                (part,) = source.ranges
                text = f"SELECT n FROM {part.table} WHERE {part.columns[0]} = {{}} LIMIT {{}}"
                values = [part.values[0], MAX_PROBED]
            ((count,),) = await self._fetch(f"SELECT count(*) FROM ({text}) AS s", values)
            if source.sorted or count < MAX_PROBED:
                counted.append((count, place))
        return sources[min(counted)[1]] if counted else ALL

    async def _number_of(self, execution: str) -> int | None:
        rows = await self._fetch("SELECT n FROM execution WHERE id = {}", [execution])
        return int(rows[0][0]) if rows else None

    async def _bounds(self, wanted: ExecutionFilter, before: int = MAX_NUMBER) -> Bounds:
        """Return the numbers between which the executions of a filter started, below a number."""
        floor = 0
        if wanted.since is not None:
            floor = await self._first_since(wanted.since - CLOCK_SKEW_MS)
        if wanted.until is not None:
            before = min(before, await self._first_since(wanted.until + CLOCK_SKEW_MS))
        return Bounds(floor, before, period_of(wanted, "at"))

    async def _first_since(self, moment: int) -> int:
        """Return the number of the first execution that started at a time or later, found by halving. Numbers grow with
        time, and no index on the time has to be written with every start."""
        rows = await self._fetch(_FIRST_SINCE, [moment] * _FIRST_SINCE.count("{}"))
        return int(rows[0][0]) if rows and rows[0][0] is not None else 0


class ExecutionStatistics:
    """Counts the executions of one database."""

    def __init__(self, fetch: Fetch, dialect: Dialect) -> None:
        self._fetch = fetch
        self._dialect = dialect

    async def ended(self, since: int, until: int) -> list[StatusCount]:
        """Count the executions that ended in a period, by workflow and status."""
        return [StatusCount(*row) for row in await self._fetch(_ENDED, [since, until])]

    async def stored(self, since: int, until: int, step: int) -> StoredCounts:
        """Return the stored counts of a period, summed up by the beginning of steps."""
        rows = await self._fetch(_RANGE, [])
        if not rows:
            return StoredCounts()
        low, high = rows[0]
        counts: dict[int, list[StatusCount]] = {}
        for begin, workflow, status, count in await self._fetch(_STORED, [step, since, until]):
            counts.setdefault(int(begin), []).append(StatusCount(workflow, status, int(count)))
        return StoredCounts(low, high, counts)

    async def first_end(self) -> int | None:
        """Return the end time of the stored execution that ended first."""
        ((first,),) = await self._fetch(_FIRST_END, [])
        return None if first is None else int(first)

    async def open(self) -> list[StatusCount]:
        """Count the executions that have not ended, by workflow and status."""
        return [StatusCount(*row) for row in await self._fetch(_OPEN, [])]

    async def recent(self, workflow: str, limit: int) -> list[RecentExecution]:
        """Return the newest executions of a workflow, newest first."""
        parts = [
            each.newest("n, id, status, at, ended_at", Conditions([], []), limit, self._dialect)
            for each in of_workflow(workflow, STATUSES)
        ]
        text = " UNION ALL ".join(part for part, _ in parts)
        rows = await self._fetch(text, [value for _, values in parts for value in values])
        newest = sorted(rows, key=lambda row: -row[0])[:limit]
        return [RecentExecution(*row[1:]) for row in newest]

    async def durations(self, workflow: str, limit: int) -> list[int]:
        """Return how long the executions of a workflow that ended last took, in ms."""
        return [max(0, int(row[0])) for row in await self._fetch(_DURATIONS, [workflow, limit])]
