"""One execution of the simulated world, and its place in a family."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from rune.core.execution.fact import ExecutionEnded, Fact, fact_key
from rune.core.execution.token import Path
from tests.simulation.case import Case
from tests.simulation.journal import Journal, Weather
from tests.simulation.store import Store


@dataclass(frozen=True)
class Parent:
    """Who waits for the end of an execution."""

    id: str
    node: int
    path: Path
    attempt: int


@dataclass(eq=False)
class Execution:
    """Its journal, its state, and what was told of it."""

    id: str
    case: Case
    journal: Journal
    store: Store
    parent: Parent | None = None
    told: bool = False
    is_again: bool = False  # it began with results of another one
    completions: list[ExecutionEnded] = field(default_factory=list)


def accept(
    id: str, case: Case, weather: Weather, kept: Iterable[Fact] = (), parent: Parent | None = None
) -> Execution:
    """An execution whose journal begins with these facts."""
    journal = Journal(weather)
    journal.facts = {fact_key(fact): fact for fact in kept}
    store = Store(case.plan, journal, weather)
    return Execution(id, case, journal, store, parent, is_again=bool(journal.facts))
