"""Reruns: the facts that a rerun keeps, and checks that it may keep them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random

from rune.core.execution.fact import Fact, NodeResult
from rune.core.execution.rerun import failed_items, from_node, kept_results, unfinished
from rune.core.execution.token import Path, Ref
from tests.simulation.execution import Execution
from tests.simulation.journal import ViolationError

Key = tuple[int, Path]


def facts_to_keep(execution: Execution, now: int, rng: Random) -> list[Fact] | None:
    """The facts that a random rerun of an ended execution keeps; None if no token would run again."""
    facts = list(execution.journal.facts.values())
    rerun = _tokens_to_rerun(execution, facts, rng)
    if not rerun:
        return None
    found = kept_results(execution.case.plan, facts, rerun, now)
    _check_kept(_results(facts), _results(found), rerun)
    return found


def _tokens_to_rerun(execution: Execution, facts: Sequence[Fact], rng: Random) -> set[Key]:
    plan = execution.case.plan
    mode = rng.choice(("retry", "retry", "items", "node", "node"))
    if mode == "retry":
        return unfinished(plan, facts)
    if mode == "items":
        return failed_items(plan, facts)
    node, path = rng.choice(sorted(_results(facts)) or [(-1, ())])
    return from_node(plan, facts, node, path if rng.random() < 0.5 else ())


def _results(facts: Iterable[Fact]) -> dict[Key, NodeResult]:
    return {(each.node, each.path): each for each in facts if isinstance(each, NodeResult)}


def _check_kept(old: dict[Key, NodeResult], new: dict[Key, NodeResult], rerun: set[Key]) -> None:
    """No kept result runs again, depends on a token that does, or was changed."""
    for key, result in new.items():
        if key in rerun:
            raise ViolationError(f"{key} runs again and was kept")
        if (old[key].value, old[key].items) != (result.value, result.items):
            raise ViolationError(f"{key} was changed when it was kept")
        for ref in (result.payload, result.error, *(each.payload for each in result.arrived)):
            if ref is not None and _source(ref) in old.keys() - new.keys():
                raise ViolationError(f"{key} was kept without {ref}, on which it depends")


def _source(ref: Ref) -> Key:
    return (ref.node, ref.path[:-2] if ref.kind == "item" else ref.path)
