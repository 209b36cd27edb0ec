"""The journal of the simulated world: write once, first writer wins, never lost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rune.core.execution.fact import (
    AttemptFailed,
    ExecutionEnded,
    Fact,
    NodeResult,
    NodeSuspended,
    PauseChanged,
    SignalReceived,
    TokenFact,
    fact_key,
)
from rune.core.execution.token import Path, Token
from rune.nodes.base import Interruption


class Outage(Interruption):
    """A store is away. Nobody's fault, and nothing is counted."""


class Violation(Exception):
    """A promise was broken."""


class Ended(Exception):
    """The terminal row is there: what came later is kept, marked late, and nothing follows from it."""


class Spent(Exception):
    """The signal that a token was resumed by has been taken by another one."""


class Weather:
    """Which kinds of stores are away, and how many rows were written; all executions share it."""

    def __init__(self) -> None:
        self.journal = False
        self.state = False
        self.rows = 0


class Journal:
    """Facts by key, in the order they were written. `marks` are rows that somebody must still look at."""

    def __init__(self, weather: Weather) -> None:
        self.facts: dict[tuple[Any, ...], Fact] = {}
        self.order: dict[tuple[Any, ...], int] = {}  # which row of the world each fact was
        self.late: list[Fact] = []
        self.outbox: list[ExecutionEnded] = []
        self.marks: list[SignalReceived | PauseChanged] = []
        self.taken: dict[str, tuple[Any, ...]] = {}
        self.weather = weather

    def record(self, facts: Sequence[Fact], *, head: bool = True) -> list[Fact]:
        """Write a run of facts. With `head` all hangs on the first: if that is lost, none is written."""
        if self.weather.journal:
            raise Outage
        if facts and head:
            first = self.facts.get(fact_key(facts[0]))
            if first is not None and first is not facts[0]:
                return [first]
            if self._is_spent(facts[0]):
                raise Spent
        stored = [self._write(fact) for fact in facts]
        if any(fact in self.late for fact in stored):
            raise Ended
        return stored

    def _is_spent(self, fact: Fact) -> bool:
        """One signal resumes one wait: like a token's result, its taking is written once."""
        if not isinstance(fact, NodeResult | AttemptFailed) or fact.signal is None:
            return False
        return self.taken.get(fact.signal, _taker(fact)) != _taker(fact)

    def _write(self, fact: Fact) -> Fact:
        key = fact_key(fact)
        if key in self.facts:
            return self.facts[key]
        if ("end",) in self.facts:
            self.late.append(fact)
            return fact
        self.facts[key] = fact
        self.weather.rows += 1
        self.order[key] = self.weather.rows
        if isinstance(fact, ExecutionEnded):
            self.outbox.append(fact)
        elif isinstance(fact, SignalReceived | PauseChanged):
            self.marks.append(fact)
        elif isinstance(fact, NodeResult | AttemptFailed) and fact.signal is not None:
            self.taken[fact.signal] = _taker(fact)
        return fact

    def result(self, node: int, path: Path) -> NodeResult | None:
        fact = self.facts.get(("result", node, path))
        return fact if isinstance(fact, NodeResult) else None

    def newest(self, token: Token) -> TokenFact | None:
        """What is known of the token as it was sent: its result, or how this try ended or was suspended."""
        found: Fact | None = self.result(token.node, token.path)
        found = found or self.facts.get(("attempt", token.node, token.path, token.attempt))
        if found is None and not token.resumed:
            found = self.facts.get(("suspend", token.node, token.path, token.attempt))
        return found if isinstance(found, NodeResult | AttemptFailed | NodeSuspended) else None

    @property
    def paused(self) -> bool:
        controls = [fact for fact in self.facts.values() if isinstance(fact, PauseChanged)]
        return bool(controls) and max(controls, key=lambda each: each.number).paused

    @property
    def end(self) -> ExecutionEnded | None:
        fact = self.facts.get(("end",))
        return fact if isinstance(fact, ExecutionEnded) else None


def _taker(fact: NodeResult | AttemptFailed) -> tuple[Any, ...]:
    return (fact.node, fact.path, fact.attempt)
