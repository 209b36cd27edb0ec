"""Samples of scrapes, and the values expected from the journal."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from prometheus_client.parser import text_string_to_metric_families

from rune.core.execution.fact import AttemptFailed, ExecutionEnded, NodeResult, NodeSuspended
from rune.ports.queries import outcome_of
from rune.runtime.engine import Engine

Sample = tuple[str, tuple[tuple[str, str], ...]]


def samples(*texts: str) -> dict[Sample, float]:
    """Return every sample summed over the scrapes; only counters may be summed."""
    found: defaultdict[Sample, float] = defaultdict(float)
    for text in texts:
        for family in text_string_to_metric_families(text):
            for each in family.samples:
                found[(each.name, tuple(sorted(each.labels.items())))] += each.value
    return dict(found)


def sample(found: dict[Sample, float], name: str, **labels: str) -> float:
    """Return one sample, 0 if it is missing."""
    return found.get((name, tuple(sorted(labels.items()))), 0.0)


def values_by_labels(found: dict[Sample, float], name: str) -> dict[tuple[str, ...], float]:
    """Return the non-zero samples of a name by their label values, ordered by label name."""
    return {
        tuple(value for _, value in labels): each
        for (named, labels), each in found.items()
        if named == name and each
    }


class JournalCounts:
    """Counts of facts in the journal."""

    def __init__(self) -> None:
        self.runs: Counter[tuple[str, str]] = Counter()  # status and type
        self.ended: Counter[tuple[str, ...]] = Counter()
        self.joins = 0
        self.waits = 0
        self.attempts = 0


STATUS = {AttemptFailed: "retried", NodeSuspended: "suspended"}


async def journal_counts(engine: Engine, executions: Iterable[str]) -> JournalCounts:
    """Count the facts of the executions."""
    found = JournalCounts()
    for execution in executions:
        accepted = await engine.backend.journal.accepted(execution)
        assert accepted is not None
        plan = await engine.plans.plan(accepted.hash)
        facts: Sequence[object] = [
            each.fact for each in await engine.backend.journal.facts(execution) if not each.late
        ]
        for fact in facts:
            if isinstance(fact, ExecutionEnded):
                found.ended[(outcome_of(fact.status), fact.status)] += 1
            elif isinstance(fact, NodeResult):
                found.runs[(fact.status, plan.nodes[fact.node].type.name)] += 1
                found.joins += bool(fact.arrived)
            elif isinstance(fact, AttemptFailed | NodeSuspended):
                found.runs[(STATUS[type(fact)], plan.nodes[fact.node].type.name)] += 1
                found.attempts += isinstance(fact, AttemptFailed)
                found.waits += isinstance(fact, NodeSuspended)
        end = await engine.backend.journal.end(execution)
        if end is not None and not any(isinstance(each, ExecutionEnded) for each in facts):
            found.ended[(outcome_of(end.status), end.status)] += 1
    return found
