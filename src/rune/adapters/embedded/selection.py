"""The selection: ended executions that rules select, read in pages, the newest first.

The newest first, because they lie at the end of the file: what is freed there can be cut off at once, and an
execution that holds results of an earlier one goes before it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import NamedTuple

from rune.ports.retention import ENDED, Rule, applicable

_FAR = 2**62
_NEXT_WORKFLOW = (
    "SELECT workflow FROM execution INDEXED BY execution_ended"
    " WHERE ended_at IS NOT NULL AND workflow > ? ORDER BY workflow LIMIT 1"
)

FREE = (
    "candidate.ended_at IS NOT NULL"
    " AND NOT EXISTS (SELECT 1 FROM needs WHERE other = candidate.id AND execution <> candidate.id)"
    " AND NOT EXISTS (SELECT 1 FROM execution parent"
    " WHERE parent.id = candidate.parent AND parent.ended_at IS NULL)"
)
"""Nobody needs the candidate, nobody waits for it."""


class Candidate(NamedTuple):
    """An execution that a rule selects."""

    n: int
    id: str
    ended_at: int


Bound = tuple[int, int]
"""When it ended and its number; a rule selects what lies before."""


class Selection:
    """Walks workflow by workflow. Every page is a query of its own: nothing is held open in between."""

    def __init__(self, db: sqlite3.Connection, rules: Sequence[Rule], now: int) -> None:
        self._db = db
        self._rules = rules
        self._now = now
        self._workflow = ""
        self._query = ""
        self._arguments: list[object] = []
        self._cursor: Bound | None = None

    def page(self, limit: int) -> list[Candidate]:
        """The next ones; none when all were seen."""
        while True:
            if self._cursor is None and not self._enter_next():
                return []
            assert self._cursor is not None
            rows = self._db.execute(
                self._query, (self._workflow, *self._cursor, *self._arguments, limit)
            ).fetchall()
            if rows:
                found = [Candidate(*row) for row in rows]
                self._cursor = (found[-1].ended_at, found[-1].n)
                return found
            self._cursor = None

    def free(self, page: Sequence[Candidate]) -> int:
        """How many of a page could go now."""
        marks = ", ".join("?" * len(page))
        (count,) = self._db.execute(
            f"SELECT count(*) FROM execution candidate WHERE n IN ({marks}) AND {FREE}",
            [each.n for each in page],
        ).fetchone()
        return int(count)

    def _enter_next(self) -> bool:
        """Go on to the next workflow of which something is selected."""
        while True:
            row = self._db.execute(_NEXT_WORKFLOW, (self._workflow,)).fetchone()
            if row is None:
                return False
            (self._workflow,) = row
            rules = applicable(self._rules, self._workflow)
            bounds = [(rule, bound) for rule in rules if (bound := self._bound(rule)) is not None]
            if bounds:
                self._prepare(bounds)
                return True

    def _prepare(self, bounds: Sequence[tuple[Rule, Bound]]) -> None:
        wanted = " OR ".join(f"(status IN ({_marks(rule)}) AND (ended_at, n) < (?, ?))" for rule, _ in bounds)
        self._arguments = [each for rule, bound in bounds for each in (*(rule.status or ENDED), *bound)]
        self._cursor = max(bound for _, bound in bounds)
        self._query = (
            "SELECT n, id, ended_at FROM execution INDEXED BY execution_ended"
            f" WHERE workflow = ? AND ended_at IS NOT NULL AND (ended_at, n) < (?, ?) AND ({wanted})"
            " ORDER BY ended_at DESC, n DESC LIMIT ?"
        )

    def _bound(self, rule: Rule) -> Bound | None:
        """Where the part that a rule selects begins; None if it selects nothing."""
        bound = (_FAR, _FAR) if rule.older_than is None else (self._now - rule.older_than + 1, -1)
        if not rule.keep:
            return bound
        last_kept: Bound | None = self._db.execute(
            "SELECT ended_at, n FROM execution INDEXED BY execution_ended"
            f" WHERE workflow = ? AND ended_at IS NOT NULL AND status IN ({_marks(rule)})"
            " ORDER BY ended_at DESC, n DESC LIMIT 1 OFFSET ?",
            (self._workflow, *(rule.status or ENDED), rule.keep - 1),
        ).fetchone()
        return None if last_kept is None else min(bound, last_kept)


def _marks(rule: Rule) -> str:
    return ", ".join("?" * len(rule.status or ENDED))
