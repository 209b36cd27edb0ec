"""A simulated execution and its link to its parent."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from rune.core.execution.fact import ExecutionEnded, Fact, NodeResult, fact_key
from rune.core.execution.joins import Lookup
from rune.core.execution.scope import ValueSource
from rune.core.execution.stored_value import Same
from rune.core.execution.token import Path
from tests.simulation.case import Case
from tests.simulation.journal import Journal, Outages
from tests.simulation.store import Store


@dataclass(frozen=True)
class ParentLink:
    """The token of the parent execution that waits for a child."""

    id: str
    node: int
    path: Path
    attempt: int


@dataclass(eq=False)
class Execution:
    """An execution with its journal, its state store and its published completions."""

    id: str
    case: Case
    journal: Journal
    store: Store
    parent: ParentLink | None = None
    end_reported: bool = False  # the parent received the signal of its end
    is_rerun: bool = False  # its journal starts with results of an earlier execution
    completions: list[ExecutionEnded] = field(default_factory=list)

    def values(self, results: Lookup) -> ValueSource:
        """The values of the execution, read from these results."""
        values = ValueSource(self.case.plan, self.case.start, results, {"id": self.id}, lambda value: value)
        values.limits = self.case.limits
        return values

    def value(self, result: NodeResult) -> Any:
        """The output of a recorded result; that of a node which passed its payload on is where it comes from."""
        if isinstance(result.value, Same):
            return self.values(self.journal.result).value(result.value.ref)
        return result.value


def create_execution(
    id: str, case: Case, outages: Outages, kept_facts: Iterable[Fact] = (), parent: ParentLink | None = None
) -> Execution:
    """Create an execution whose journal starts with `kept_facts`."""
    journal = Journal(outages)
    journal.facts = {fact_key(fact): fact for fact in kept_facts}
    store = Store(case.plan, journal, outages)
    return Execution(id, case, journal, store, parent, is_rerun=bool(journal.facts))
