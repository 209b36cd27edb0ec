"""The selection: ended executions that rules select, read in pages, the newest first, so that an execution that holds
results of an earlier one goes before it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rune.adapters.postgres.database import Database
from rune.adapters.postgres.sql import query
from rune.ports.retention import ENDED, Rule, applicable

_FAR = 2**62

Bound = tuple[int, int]
"""When it ended and its number; a rule selects what lies before."""


class Candidate(NamedTuple):
    """An execution that a rule selects."""

    n: int
    id: str
    ended_at: int


class Selection:
    """Walks workflow by workflow. Every page is a statement of its own: nothing is held open in between."""

    def __init__(self, database: Database, rules: Sequence[Rule], now: int) -> None:
        self._database = database
        self._rules = rules
        self._now = now
        self._workflow = ""
        self._bounds: dict[str, Bound] = {}
        self._cursor: Bound | None = None

    async def page(self, limit: int) -> list[Candidate]:
        """The next ones; none when all were seen."""
        while True:
            if self._cursor is None and not await self._enter_next():
                return []
            assert self._cursor is not None
            bounds = list(self._bounds.items())
            rows = await self._database.fetch(
                query("selected"),
                self._workflow,
                *self._cursor,
                [status for status, _ in bounds],
                [bound[0] for _, bound in bounds],
                [bound[1] for _, bound in bounds],
                limit,
            )
            if rows:
                found = [Candidate(*row) for row in rows]
                self._cursor = (found[-1].ended_at, found[-1].n)
                return found
            self._cursor = None

    async def _enter_next(self) -> bool:
        """Go on to the next workflow of which something is selected."""
        while True:
            row = await self._database.row(query("next_workflow"), self._workflow)
            if row is None:
                return False
            self._workflow = row["workflow"]
            self._bounds = await self._bounds_of(applicable(self._rules, self._workflow))
            if self._bounds:
                self._cursor = max(self._bounds.values())
                return True

    async def _bounds_of(self, rules: Sequence[Rule]) -> dict[str, Bound]:
        """What is selected of each status: one rule is enough, so the farthest bound counts."""
        bounds: dict[str, Bound] = {}
        for rule in rules:
            bound = await self._bound(rule)
            if bound is None:
                continue
            for status in rule.status or ENDED:
                bounds[status] = max(bound, bounds.get(status, bound))
        return bounds

    async def _bound(self, rule: Rule) -> Bound | None:
        """Where the part that a rule selects begins; None if it selects nothing."""
        bound = (_FAR, _FAR) if rule.older_than is None else (self._now - rule.older_than + 1, -1)
        if not rule.keep:
            return bound
        row = await self._database.row(
            query("last_kept"), self._workflow, list(rule.status or ENDED), rule.keep - 1
        )
        return None if row is None else min(bound, (row["ended_at"], row["n"]))
