"""Simulated journal: rows are written once, the first writer wins, nothing is lost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
    """A store is unavailable; the attempt is not counted."""


class ViolationError(Exception):
    """An invariant does not hold."""


class AlreadyEndedError(Exception):
    """The terminal row exists: later facts are stored as late and have no effect."""


class SignalTakenError(Exception):
    """The signal that resumed a token was already taken by another token."""


class Outages:
    """Which stores are unavailable, and the number of rows written; shared by all executions."""

    def __init__(self) -> None:
        self.journal = False
        self.state = False
        self.row_count = 0
        self.write_is_lost: Callable[[Callable[[], object]], bool] = lambda write: False
        """Whether the caller of a write to the journal gets no answer. The write may be made all the same, or later."""


class Journal:
    """Facts by key in write order. `unapplied` holds rows that the state has not applied yet."""

    def __init__(self, outages: Outages) -> None:
        self.facts: dict[tuple[Any, ...], Fact] = {}
        self.row_numbers: dict[tuple[Any, ...], int] = {}  # row number of each fact, over all journals
        self.late: list[Fact] = []
        self.outbox: list[ExecutionEnded] = []
        self.unapplied: list[SignalReceived | PauseChanged] = []
        self.signal_takers: dict[str, tuple[Any, ...]] = {}
        self.outages = outages

    def record(self, facts: Sequence[Fact], *, require_first: bool = True) -> list[Fact]:
        """Write facts in one transaction. With `require_first` none is written if the first key is taken."""
        if self.outages.journal:
            raise Outage

        def write() -> list[Fact]:
            return self._record(facts, require_first)

        # A pause counts from its row, and holds from its application: an end that was decided in between stands.
        if not isinstance(facts[0], PauseChanged) and self.outages.write_is_lost(write):
            raise Outage
        return write()

    def _record(self, facts: Sequence[Fact], require_first: bool) -> list[Fact]:
        if facts and require_first:
            first = self.facts.get(fact_key(facts[0]))
            if first is not None and first is not facts[0]:
                return [first]
            if self._is_signal_taken(facts[0]):
                raise SignalTakenError
        stored = [self._write(fact) for fact in facts]
        if any(fact in self.late for fact in stored):
            raise AlreadyEndedError
        return stored

    def _is_signal_taken(self, fact: Fact) -> bool:
        """Whether another token took the signal of this fact."""
        if not isinstance(fact, NodeResult | AttemptFailed) or fact.signal is None:
            return False
        return self.signal_takers.get(fact.signal, _taker(fact)) != _taker(fact)

    def _write(self, fact: Fact) -> Fact:
        key = fact_key(fact)
        if key in self.facts:
            return self.facts[key]
        if ("end",) in self.facts:
            self.late.append(fact)
            return fact
        self.facts[key] = fact
        self.outages.row_count += 1
        self.row_numbers[key] = self.outages.row_count
        if isinstance(fact, ExecutionEnded):
            self.outbox.append(fact)
        elif isinstance(fact, SignalReceived | PauseChanged):
            self.unapplied.append(fact)
        elif isinstance(fact, NodeResult | AttemptFailed) and fact.signal is not None:
            self.signal_takers[fact.signal] = _taker(fact)
        return fact

    def result(self, node: int, path: Path) -> NodeResult | None:
        fact = self.facts.get(("result", node, path))
        return fact if isinstance(fact, NodeResult) else None

    def latest(self, token: Token) -> TokenFact | None:
        """The result of the token, or the failure or suspension of its attempt."""
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
