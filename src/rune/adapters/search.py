"""Search for executions, shared by the SQL adapters: which index a filter is read along, and the statements for it.

Executions are numbered in the order of their starts, so every index that ends with the number yields the newest first.
A page is read along one source, the one with the fewest rows, and the other conditions are checked row by row. At most
MAX_SCANNED rows of the source are read for a page; a page may therefore be short and still have a successor.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from rune.adapters.rows import FAILED_ITEMS, WAITING, label_term, search_term
from rune.core.permissions import LOCAL
from rune.ports.queries import STATUSES, ExecutionCount, ExecutionFilter, ExecutionsFound, Summary

MAX_SCANNED = 5_000
FIRST_SCANNED = 4  # rows per result that are read first
MAX_PROBED = 1_000  # rows that are counted in order to compare two sources
MAX_COUNTED = 10_000
PROBES = 32  # per round of a search by time
CLOCK_SKEW_MS = 60_000  # between processes that number their starts one after another
MAX_NUMBER = 2**63 - 1

Fetch = Callable[[str, list[Any]], Awaitable[Sequence[Sequence[Any]]]]
"""Runs a statement whose parameters are written as `{}`."""


class Source(msgspec.Struct, frozen=True):
    """A way to read numbers of executions, newest first: one or several ranges of an index. `sorted`: a range is in
    the order of the numbers. `covers`: the fields of the filter that all its executions match."""

    ranges: tuple[tuple[str, tuple[Any, ...]], ...]
    sorted: bool = True
    covers: frozenset[str] = frozenset()
    term: str | None = None

    def statement(self, limit: int, floor: int, before: int) -> tuple[str, list[Any]]:
        """Return the statement for the newest numbers between two others."""
        parts: list[str] = []
        values: list[Any] = []
        for text, given in self.ranges:
            parts.append(f"SELECT * FROM ({text} AND n >= {{}} AND n < {{}} ORDER BY n DESC LIMIT {{}}) AS r")
            values += [*given, floor, before, limit]
        merged = " UNION ALL ".join(parts)
        if len(parts) > 1:
            merged = f"SELECT n FROM ({merged}) AS u ORDER BY n DESC LIMIT {{}}"
            values.append(limit)
        return merged, values


ALL = Source((("SELECT n FROM execution WHERE n > 0", ()),))


class Conditions(msgspec.Struct):
    """Conditions on a row of `execution`, all of which must hold."""

    texts: list[str] = []
    values: list[Any] = []

    def add(self, text: str, *values: Any) -> None:
        self.texts.append(text)
        self.values += values

    def sql(self) -> str:
        return "".join(f" AND {text}" for text in self.texts)


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
    by_term = "SELECT n FROM execution_term WHERE term = {}"
    found = [Source(((by_term, (term,)),), term=term) for term in terms_of(wanted)]
    if wanted.parent is not None:
        text = "SELECT n FROM execution WHERE parent = {}"
        found.append(Source(((text, (wanted.parent,)),), covers=frozenset({"parent"})))
    if wanted.workflow is not None:
        text = "SELECT n FROM execution WHERE workflow = {} AND status = {}"
        ranges = tuple((text, (wanted.workflow, status)) for status in wanted.statuses or STATUSES)
        found.append(Source(ranges, covers=frozenset({"workflow", "statuses"})))
    elif wanted.statuses:
        text = "SELECT n FROM execution WHERE status = {}"
        found.append(
            Source(tuple((text, (status,)) for status in wanted.statuses), covers=frozenset({"statuses"}))
        )
    if wanted.hash is not None:
        text = "SELECT n FROM execution WHERE hash = {}"
        found.append(Source(((text, (wanted.hash,)),), sorted=False, covers=frozenset({"hash"})))
    return found


def conditions_of(
    wanted: ExecutionFilter, source: Source, like: Callable[[str], tuple[str, str]]
) -> Conditions:
    """Return the conditions of a filter that its source does not cover. `like` compares a workflow with a scope: it
    returns the operator and the value."""
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
    if wanted.since is not None:
        found.add("x.at >= {}", wanted.since)
    if wanted.until is not None:
        found.add("x.at < {}", wanted.until)
    if wanted.scopes:
        compared = [like(each) for each in wanted.scopes]
        text = " OR ".join(f"x.workflow {operator}" for operator, _ in compared)
        found.add(f"({text})", *(value for _, value in compared))
    return found


class ExecutionSearch:
    """Searches the executions of one database."""

    def __init__(
        self,
        fetch: Fetch,
        columns: str,
        summary: Callable[[tuple[Any, ...]], Summary],
        like: Callable[[str], tuple[str, str]],
    ) -> None:
        self._fetch = fetch
        self._columns = columns
        self._summary = summary
        self._like = like

    async def find(self, wanted: ExecutionFilter, *, after: str | None, limit: int) -> ExecutionsFound:
        """Return a page of executions, newest first, and the id to continue after."""
        before = await self._number_of(after) if after is not None else MAX_NUMBER
        if before is None:
            return ExecutionsFound([], None)
        floor, ceiling = await self._bounds(wanted)
        before = min(before, ceiling)
        source = await self._choose(wanted, floor, before)
        conditions = conditions_of(wanted, source, self._like)
        # Most pages are full after a few rows.
        for size in dict.fromkeys((min(MAX_SCANNED, FIRST_SCANNED * (limit + 1)), MAX_SCANNED)):
            scanned, values = source.statement(size, floor, before)
            rows = await self._fetch(
                f"SELECT {self._columns} FROM ({scanned}) AS s CROSS JOIN execution AS x WHERE x.n = s.n"
                f"{conditions.sql()} ORDER BY s.n DESC LIMIT {{}}",
                [*values, *conditions.values, limit + 1],
            )
            if len(rows) > limit:
                found = [self._summary(tuple(row)) for row in rows[:limit]]
                return ExecutionsFound(found, found[-1].id)
            last = await self._last_scanned(scanned, values, size)
            if last is None:
                break
        return ExecutionsFound([self._summary(tuple(row)) for row in rows], last)

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
        floor, before = await self._bounds(wanted)
        source = await self._choose(wanted, floor, before)
        scanned, values = source.statement(MAX_COUNTED, floor, before)
        conditions = conditions_of(wanted, source, self._like)
        text = f"SELECT count(*) FROM ({scanned}) AS s CROSS JOIN execution AS x WHERE x.n = s.n{conditions.sql()}"
        ((matching,),) = await self._fetch(text, [*values, *conditions.values])
        ((read, last),) = await self._fetch(f"SELECT count(*), min(s.n) FROM ({scanned}) AS s", values)
        if read < MAX_COUNTED:
            return ExecutionCount(matching, exact=True)
        ((first, newest),) = await self._fetch(
            "SELECT (SELECT n FROM execution WHERE n >= {} ORDER BY n LIMIT 1),"
            " (SELECT n FROM execution WHERE n < {} ORDER BY n DESC LIMIT 1)",
            [floor, before],
        )
        share = (newest - first + 1) / max(1, newest - last + 1)
        return ExecutionCount(round(matching * share), exact=False)

    async def _choose(self, wanted: ExecutionFilter, floor: int, before: int) -> Source:
        """Return the source with the fewest rows. A range that is not in order is used only if it is short."""
        sources = sources_of(wanted)
        if not sources:
            return ALL
        if len(sources) == 1 and sources[0].sorted:
            return sources[0]
        counted: list[tuple[int, int]] = []
        for place, source in enumerate(sources):
            text, values = source.statement(MAX_PROBED, floor, before)
            if not source.sorted:
                ((part, given),) = source.ranges
                text, values = f"{part} LIMIT {{}}", [*given, MAX_PROBED]
            ((count,),) = await self._fetch(f"SELECT count(*) FROM ({text}) AS s", values)
            if source.sorted or count < MAX_PROBED:
                counted.append((count, place))
        return sources[min(counted)[1]] if counted else ALL

    async def _number_of(self, execution: str) -> int | None:
        rows = await self._fetch("SELECT n FROM execution WHERE id = {}", [execution])
        return int(rows[0][0]) if rows else None

    async def _bounds(self, wanted: ExecutionFilter) -> tuple[int, int]:
        """Return the numbers between which the executions of a filter started. The clocks of two processes may differ,
        so the bounds are wider, and times are compared row by row."""
        floor, before = 0, MAX_NUMBER
        if wanted.since is not None:
            floor = await self._first_since(wanted.since - CLOCK_SKEW_MS)
        if wanted.until is not None:
            before = await self._first_since(wanted.until + CLOCK_SKEW_MS)
        return floor, before

    async def _first_since(self, moment: int) -> int:
        """Return the number of the first execution that started at a time or later, found by probing. Numbers grow with
        time, and no index on the time has to be written with every start."""
        ((low, high),) = await self._fetch(
            "SELECT (SELECT n FROM execution ORDER BY n LIMIT 1),"
            " (SELECT n FROM execution ORDER BY n DESC LIMIT 1)",
            [],
        )
        if low is None:
            return 0
        high += 1
        while low < high:
            step = max(1, (high - low) // PROBES)
            points = list(range(low, high, step))
            probe = " UNION ALL ".join(
                ["SELECT * FROM (SELECT n, at FROM execution WHERE n >= {} ORDER BY n LIMIT 1) AS p"]
                * len(points)
            )
            rows = await self._fetch(probe, points)
            earlier = [int(n) for n, at in rows if at < moment]
            later = [int(n) for n, at in rows if at >= moment]
            new_low = max([low, *(n + 1 for n in earlier)])
            new_high = min([high, *later])
            if (new_low, new_high) == (low, high):
                break
            low, high = new_low, new_high
        return int(low)
