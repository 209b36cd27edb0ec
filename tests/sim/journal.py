"""The journal of the simulated world: write once, first writer wins, never lost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rune.core.fact import Control, End, Fact, Result, fact_key
from rune.core.lineage import Path


class Outage(Exception):
    """A store is away. Nobody's fault, and nothing is counted."""


class Violation(Exception):
    """A promise was broken."""


class Ended(Exception):
    """The terminal row is there: what came later is kept, marked late, and nothing follows from it."""


class Journal:
    """Facts by key, in the order they were written."""

    def __init__(self) -> None:
        self.facts: dict[tuple[Any, ...], Fact] = {}
        self.late: list[Fact] = []
        self.outbox: list[End] = []
        self.away = False

    def record(self, facts: Sequence[Fact], *, head: bool = True) -> list[Fact]:
        """Write a run of facts. With `head` all hangs on the first: if that is lost, none is written."""
        if self.away:
            raise Outage
        if facts and head:
            first = self.facts.get(fact_key(facts[0]))
            if first is not None and first is not facts[0]:
                return [first]
        stored = [self._write(fact) for fact in facts]
        if any(fact in self.late for fact in stored):
            raise Ended
        return stored

    def _write(self, fact: Fact) -> Fact:
        key = fact_key(fact)
        if key in self.facts:
            return self.facts[key]
        if ("end",) in self.facts:
            self.late.append(fact)
            return fact
        self.facts[key] = fact
        if isinstance(fact, End):
            self.outbox.append(fact)
        return fact

    def result(self, node: int, path: Path) -> Result | None:
        fact = self.facts.get(("result", node, path))
        return fact if isinstance(fact, Result) else None

    @property
    def paused(self) -> bool:
        controls = [fact for fact in self.facts.values() if isinstance(fact, Control)]
        return bool(controls) and controls[-1].paused

    @property
    def end(self) -> End | None:
        fact = self.facts.get(("end",))
        return fact if isinstance(fact, End) else None
