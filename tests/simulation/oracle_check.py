"""Compares an ended execution, of the simulator or of the engine, with the oracle."""

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
from tests.simulation.oracle.compare import differences, matches
from tests.simulation.oracle.evaluate import check_choices, evaluate
from tests.simulation.oracle.model import Model

OracleKey = tuple[str, tuple[tuple[str, int], ...]]
Results = dict[tuple[int, Path], NodeResult]


class OracleMismatchError(Exception):
    """The journal differs from the expectation of the oracle."""


@dataclass(frozen=True)
class EndedExecution:
    """An ended execution: its facts without the terminal one, and a function that reads the value of a result."""

    plan: Plan
    facts: list[Fact]
    end: ExecutionEnded
    start: Any
    now: int
    value: Callable[[NodeResult], Any]


def check_against_oracle(execution: EndedExecution, model: Model) -> Expected:
    """Compare an execution with the oracle; raises OracleMismatchError."""
    results, skipped = _replay(execution)
    choices = _choices(execution, results, skipped)
    expected = evaluate(model, execution.start, choices)
    _compare(execution, model, expected, choices, results, skipped)
    return expected


def _replay(execution: EndedExecution) -> tuple[Results, list[tuple[int, Path]]]:
    """The results in the journal, and the skipped tokens that follow from them."""
    end = execution.end
    state, applied = fold(execution.plan, execution.facts, execution.now)
    if end.status != "cancelled":
        if applied.finish is None:
            raise OracleMismatchError(f"ended as {end.status}, but the fold does not finish")
        if end.status == "completed" and applied.finish.status != "completed":
            raise OracleMismatchError(f"ended as completed, the fold as {applied.finish}")
        if end.status == "completed" and len(state.scopes) != 1:
            raise OracleMismatchError("completed with items that have not ended")
    results = {(f.node, f.path): f for f in execution.facts if isinstance(f, NodeResult)}
    return results, applied.skipped


def _key(plan: Plan, node: int, path: Path) -> OracleKey:
    return plan.ids[node], tuple((plan.ids[path[i]], path[i + 1]) for i in range(0, len(path), 2))


def _choices(execution: EndedExecution, results: Results, skipped: list[tuple[int, Path]]) -> Choices:
    plan = execution.plan
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
    for row in execution.facts:
        if isinstance(row, RaceWinner) and (row.node, row.path) not in results:
            opened[_key(plan, row.node, row.path)] = tuple(edges[each.edge].id for each in row.arrived)
    return Choices(opened, frozenset(timed_out), frozenset(cancelled), _unstarted(plan, results, skipped))


def _unstarted(plan: Plan, results: Results, skipped: list[tuple[int, Path]]) -> frozenset[Any]:
    """Items without facts in fan-outs that were closed early."""
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
    execution: EndedExecution,
    model: Model,
    expected: Expected,
    choices: Choices,
    results: Results,
    skipped: list[tuple[int, Path]],
) -> None:
    plan, end = execution.plan, execution.end
    actual: dict[OracleKey, tuple[str, Any]] = {}
    for (node, path), fact in results.items():
        names = {"ok": "success"}
        value = failure_value(fact) if fact.status == "failed" else execution.value(fact)
        actual[_key(plan, node, path)] = (names.get(fact.status, fact.status), value)
    for node, path in skipped:
        actual[_key(plan, node, path)] = ("skipped", None)
    for node in plan.triggers:
        actual[_key(plan, node, ())] = ("success", execution.start)
    if end.status == "completed":
        problems = differences(expected, actual) + check_choices(model, expected, choices)
        if expected.status != "completed":
            problems.append(f"completed, expected {expected.status}")
    elif end.status == "cancelled":
        problems = _partial_differences(expected, actual)
    else:
        problems = _partial_differences(expected, actual)
        if not _is_expected_end(end, expected):
            problems.append(f"ended as {end.status} {end.error}, expected {expected.endings}")
    if problems:
        raise OracleMismatchError("\n  ".join(["the oracle disagrees:", *problems[:5]]))


def _is_expected_end(end: ExecutionEnded, expected: Expected) -> bool:
    """Whether the end is one of the expected endings."""
    code = end.error.code if end.error else None
    return any(end.status == status and matches(wanted, code) for status, wanted in expected.endings)


def _partial_differences(expected: Expected, actual: dict[OracleKey, tuple[str, Any]]) -> list[str]:
    """Differences of an execution that was stopped early; missing tokens are allowed."""
    shown = {key: value for key, value in actual.items() if key not in expected.undecided}
    known = {key: value for key, value in expected.results.items() if key in shown}
    partial = copy.copy(expected)
    partial.results = known
    return [each for each in differences(partial, shown) if "found skipped" not in each]
