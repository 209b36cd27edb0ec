"""Reruns: what a later execution begins with, and whether that may be kept."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random

from rune.core.execution.fact import Fact, NodeResult
from rune.core.execution.rerun import failed_items, from_node, kept_results, unfinished
from rune.core.execution.token import Path, Ref
from tests.simulation.execution import Execution
from tests.simulation.journal import Violation

Key = tuple[int, Path]


def beginning(execution: Execution, now: int, rng: Random) -> list[Fact] | None:
    """What a rerun of an ended execution keeps; None if there is nothing of the kind to run again."""
    facts = list(execution.journal.facts.values())
    again = _chosen(execution, facts, rng)
    if not again:
        return None
    found = kept_results(execution.case.plan, facts, again, now)
    _check_kept(_results(facts), _results(found), again)
    return found


def _chosen(execution: Execution, facts: Sequence[Fact], rng: Random) -> set[Key]:
    plan = execution.case.plan
    how = rng.choice(("retry", "retry", "items", "node", "node"))
    if how == "retry":
        return unfinished(plan, facts)
    if how == "items":
        return failed_items(plan, facts)
    node, path = rng.choice(sorted(_results(facts)) or [(-1, ())])
    return from_node(plan, facts, node, path if rng.random() < 0.5 else ())


def _results(facts: Iterable[Fact]) -> dict[Key, NodeResult]:
    return {(each.node, each.path): each for each in facts if isinstance(each, NodeResult)}


def _check_kept(old: dict[Key, NodeResult], new: dict[Key, NodeResult], again: set[Key]) -> None:
    """Nothing is kept that is to run again, stands on what does, or is no longer what it was."""
    for key, result in new.items():
        if key in again:
            raise Violation(f"{key} is to run again, and was kept")
        if (old[key].value, old[key].items) != (result.value, result.items):
            raise Violation(f"{key} was kept as something else")
        for ref in (result.payload, result.error, *(each.payload for each in result.arrived)):
            if ref is not None and _source(ref) in old.keys() - new.keys():
                raise Violation(f"{key} was kept without {ref}, on which it stands")


def _source(ref: Ref) -> Key:
    return (ref.node, ref.path[:-2] if ref.kind == "item" else ref.path)
