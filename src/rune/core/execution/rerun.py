"""Select the results that a rerun copies. An ended execution is never reopened: a rerun is a new execution.

A result is copied unless its token runs again or depends on one that does. Fan-outs are results, so items keep their
indices.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from msgspec.structs import replace

from rune.core.execution.fact import ExecutionEnded, Fact, NodeResult
from rune.core.execution.fold import fold
from rune.core.execution.joins import item_entry
from rune.core.execution.token import ROOT, Arrived, Path, within
from rune.core.plan.model import NodePlan, Plan

Key = tuple[int, Path]
Results = dict[Key, NodeResult]


def unfinished(plan: Plan, facts: Sequence[Fact]) -> set[Key]:
    """Return the tokens that a retry runs again: those that failed, were cancelled or never ended."""
    again = {key for key, each in _results(facts).items() if each.status in ("failed", "cancelled")}
    state, _ = fold(plan, [each for each in facts if not isinstance(each, ExecutionEnded)], 0)
    return again | {(node, scope.path) for scope in state.scopes.values() for node in scope.live}


def failed_items(plan: Plan, facts: Sequence[Fact]) -> set[Key]:
    """Return the failed tokens inside of items whose entry at the aggregator is an error."""
    results = _results(facts)
    failed = [key for key, each in results.items() if each.status == "failed"]
    bad = set(_failed_item_paths(plan, results))
    return {
        (node, path) for node, path in failed if any(path[: cut + 2] in bad for cut in range(0, len(path), 2))
    }


def _failed_item_paths(plan: Plan, results: Results) -> Iterator[Path]:
    def lookup(node: int, path: Path) -> NodeResult | None:
        return results.get((node, path))

    for (split, path), result in results.items():
        aggregator = plan.nodes[split].aggregator
        if result.items is None or aggregator < 0:
            continue
        for item in range(result.items):
            if item_entry(plan, plan.nodes[aggregator], path, item, lookup).error is not None:
                yield (*path, split, item)


def from_node(plan: Plan, facts: Sequence[Fact], node: int, inside: Path = ROOT) -> set[Key]:
    """Return the tokens of a node, in one lineage or in all, and the failures that halted the execution."""
    results = _results(facts)
    again = {key for key in results if key[0] == node and within(key[1], inside)}
    if not again:
        return again
    return again | {
        key
        for key, each in results.items()
        if each.status == "failed" and plan.nodes[each.node].policy == "halt"
    }


def kept_results(plan: Plan, facts: Sequence[Fact], again: set[Key], at: int) -> list[Fact]:
    """Return the results that the new execution starts with, dated at its start, so that no timeout begins earlier."""
    results = _results(facts)
    stale = _StaleTokens(plan, results, again).keys()
    return [
        replace(each, at=at, began=0, signal=None, kept=True, worker="", logged=False)
        for key, each in results.items()
        if key not in stale
    ]


def _results(facts: Iterable[Fact]) -> Results:
    return {(each.node, each.path): each for each in facts if isinstance(each, NodeResult)}


class _StaleTokens:
    """Finds the tokens that depend on a rerun token, in topological order, all scopes of a node at a time."""

    def __init__(self, plan: Plan, results: Results, again: set[Key]) -> None:
        self._plan = plan
        self._results = results
        self._stale = set(again)
        self._scopes: dict[int, set[Path]] = {-1: {ROOT}}
        for _, path in (*results, *again):
            for cut in range(2, len(path) + 1, 2):
                self._scopes.setdefault(path[cut - 2], set()).add(path[:cut])

    def keys(self) -> set[Key]:
        for index in self._plan.graph.order:
            node = self._plan.nodes[index]
            for path in self._scopes.get(node.split, ()):
                if (index, path) not in self._stale and self._depends(node, path):
                    self._stale.add((index, path))
            self._mark_aggregators(node)
        return self._stale

    def _depends(self, node: NodePlan, path: Path) -> bool:
        if node.split >= 0 and (node.split, path[:-2]) in self._stale:
            return True
        if node.joins_items and (node.split_of, path) in self._stale:
            return True
        return any((self._plan.src[edge], path) in self._stale for edge in self._edges_used(node, path))

    def _edges_used(self, node: NodePlan, path: Path) -> Iterable[int]:
        """Return the edges that a result depends on: all, or the winners of a race."""
        result = self._results.get((node.index, path))
        if node.opens == "all" or result is None or result.status != "ok":
            return node.in_edges
        arrived: tuple[Arrived, ...] = result.arrived
        return [each.edge for each in arrived]

    def _mark_aggregators(self, node: NodePlan) -> None:
        """Mark the aggregators of stale items: an aggregator depends on every item."""
        for edge in node.out:
            target = self._plan.nodes[self._plan.dst[edge]]
            if target.joins_items and target.split_of == node.split:
                for path in self._scopes.get(node.split, ()):
                    if (node.index, path) in self._stale:
                        self._stale.add((target.index, path[:-2]))
