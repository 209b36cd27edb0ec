"""The oracle's second opinion on an execution, wherever it ran: in the simulator or in the engine."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rune.core.execution.fact import ExecutionEnded, Fact, NodeResult, RaceWinner
from rune.core.execution.fold import fold
from rune.core.execution.scope import failure_value
from rune.core.execution.token import Path
from rune.core.plan.model import Plan
from tests.simulation.oracle.choices import Choices, Expected
from tests.simulation.oracle.compare import agree, differences
from tests.simulation.oracle.evaluate import check_choices, evaluate
from tests.simulation.oracle.model import Model

OracleKey = tuple[str, tuple[tuple[str, int], ...]]
Results = dict[tuple[int, Path], NodeResult]


class Disagreement(Exception):
    """What the journal says is not what had to come out."""


@dataclass(frozen=True)
class Past:
    """An execution that ended: its facts without the terminal one, and how the value of a result is read."""

    plan: Plan
    facts: list[Fact]
    end: ExecutionEnded
    start: Any
    now: int
    value: Callable[[NodeResult], Any]


def check_past(past: Past, model: Model) -> Expected:
    """Hold an execution against the oracle."""
    results, skipped = _replayed(past)
    choices = _choices(past, results, skipped)
    expected = evaluate(model, past.start, choices)
    _compare(past, model, expected, choices, results, skipped)
    return expected


def _replayed(past: Past) -> tuple[Results, list[tuple[int, Path]]]:
    """The results of the journal, and the skips that follow from them."""
    end = past.end
    state, applied = fold(past.plan, past.facts, past.now)
    if end.status != "cancelled":
        if applied.finish is None:
            raise Disagreement(f"ended as {end.status}, but the journal does not lead there")
        if end.status == "completed" and applied.finish.status != "completed":
            raise Disagreement(f"ended as completed, the journal says {applied.finish}")
        if end.status == "completed" and len(state.scopes) != 1:
            raise Disagreement("completed with items that have not ended")
    results = {(f.node, f.path): f for f in past.facts if isinstance(f, NodeResult)}
    return results, applied.skipped


def _key(plan: Plan, node: int, path: Path) -> OracleKey:
    return plan.ids[node], tuple((plan.ids[path[i]], path[i + 1]) for i in range(0, len(path), 2))


def _choices(past: Past, results: Results, skipped: list[tuple[int, Path]]) -> Choices:
    plan = past.plan
    edges = plan.definition.edges
    opened, timed_out, cancelled = {}, set(), set()
    for (node, path), fact in results.items():
        key = _key(plan, node, path)
        if plan.nodes[node].is_join and plan.nodes[node].opens != "all" and fact.status != "skipped":
            opened[key] = tuple(edges[each.edge].id for each in fact.arrived)
        if fact.failure is not None and fact.failure.code == "TIMEOUT":
            timed_out.add(key)
            opened[key] = tuple(edges[each.edge].id for each in fact.arrived)
        if fact.status == "cancelled":
            cancelled.add(key)
            opened.pop(key, None)
    for row in past.facts:
        if isinstance(row, RaceWinner) and (row.node, row.path) not in results:
            opened[_key(plan, row.node, row.path)] = tuple(edges[each.edge].id for each in row.arrived)
    return Choices(opened, frozenset(timed_out), frozenset(cancelled), _unstarted(plan, results, skipped))


def _unstarted(plan: Plan, results: Results, skipped: list[tuple[int, Path]]) -> frozenset[Any]:
    """Items of a fan-out of which nothing is known: only one that was closed early has such."""
    touched = {path[:cut] for _, path in [*results, *skipped] for cut in range(2, len(path) + 1, 2)}
    found = set()
    for (node, path), fact in results.items():
        aggregator = plan.nodes[node].aggregator
        closed = (aggregator, path) in results and results[(aggregator, path)].status != "ok"
        for item in range(fact.items or 0):
            inner = (*path, node, item)
            if closed and inner not in touched:
                found.add(_key(plan, node, inner)[1])
    return frozenset(found)


def _compare(
    past: Past,
    model: Model,
    expected: Expected,
    choices: Choices,
    results: Results,
    skipped: list[tuple[int, Path]],
) -> None:
    plan, end = past.plan, past.end
    actual: dict[OracleKey, tuple[str, Any]] = {}
    for (node, path), fact in results.items():
        names = {"ok": "success"}
        value = failure_value(fact) if fact.status == "failed" else past.value(fact)
        actual[_key(plan, node, path)] = (names.get(fact.status, fact.status), value)
    for node, path in skipped:
        actual[_key(plan, node, path)] = ("skipped", None)
    for node in plan.triggers:
        actual[_key(plan, node, ())] = ("success", past.start)
    if end.status == "completed":
        problems = differences(expected, actual) + check_choices(model, expected, choices)
        if expected.status != "completed":
            problems.append(f"completed, expected {expected.status}")
    elif end.status == "cancelled":
        problems = _disagreements(expected, actual)
    else:
        problems = _disagreements(expected, actual)
        if not _is_expected(end, expected):
            problems.append(f"ended as {end.status} {end.error}, expected {expected.endings}")
    if problems:
        raise Disagreement("\n  ".join(["the oracle disagrees:", *problems[:5]]))


def _is_expected(end: ExecutionEnded, expected: Expected) -> bool:
    """Whether an execution ended in one of the ways that are right; some codes no document names."""
    code = end.error.code if end.error else None
    return any(end.status == status and agree(wanted, code) for status, wanted in expected.endings)


def _disagreements(expected: Expected, actual: dict[OracleKey, tuple[str, Any]]) -> list[str]:
    """An execution that was stopped early: what it has must be right, what is missing was not reached."""
    shown = {key: value for key, value in actual.items() if key not in expected.undecided}
    known = {key: value for key, value in expected.results.items() if key in shown}
    partial = copy.copy(expected)
    partial.results = known
    return [each for each in differences(partial, shown) if "found skipped" not in each]
