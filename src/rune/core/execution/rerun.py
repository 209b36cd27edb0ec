"""Select the results that a rerun copies, and carry them over to the plan of an edited definition.

An ended execution is never reopened: a rerun is a new execution. A result is copied unless its token runs again or
depends on one that does. Fan-outs are results, so items keep their indices. Between two plans, nodes are matched by id
and edges by their ends, label and kind. A node that is not the same in both plans has changed: it is new, has another
type, pin or join, or other in-edges. Parameters do not count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

import msgspec
from msgspec.structs import replace

from rune.core.execution.fact import ExecutionEnded, Fact, NodeResult
from rune.core.execution.fold import fold
from rune.core.execution.joins import item_entry
from rune.core.execution.routing import routes
from rune.core.execution.token import ROOT, Arrived, Path, Ref, within
from rune.core.plan.model import NodePlan, Plan

Key = tuple[int, Path]
Results = dict[Key, NodeResult]

EdgeName = tuple[str, str, str | None, bool, int]
MoveRef = Callable[[Ref], Ref]
MoveValue = Callable[[object, MoveRef], object]
"""Moves the references in a stored value, whose form the core does not know."""


def unfinished(plan: Plan, facts: Sequence[Fact]) -> set[Key]:
    """Return the tokens that a retry runs again: those that failed, were cancelled or never ended."""
    again = {key for key, result in _results(facts).items() if result.status in ("failed", "cancelled")}
    state, _ = fold(plan, [fact for fact in facts if not isinstance(fact, ExecutionEnded)], 0)
    return again | {(node, scope.path) for scope in state.scopes.values() for node in scope.live}


def failed_items(
    plan: Plan,
    facts: Sequence[Fact],
    *,
    split: int | None = None,
    inside: Path = ROOT,
    code: str | None = None,
) -> set[Key]:
    """Return the failed tokens inside of items whose entry at the aggregator is an error. The items may be limited to
    those of one split, within one scope, and to those in which a node failed with one code."""
    results = _results(facts)
    failed = {key: result.failure for key, result in results.items() if result.status == "failed"}
    bad = {
        path
        for path in _failed_item_paths(plan, results)
        if split in (None, path[-2]) and within(path, inside)
    }
    if code is not None:
        coded = [
            path for (_, path), failure in failed.items() if failure is not None and failure.code == code
        ]
        bad &= {item for path in coded for item in _items_around(path)}
    return {(node, path) for node, path in failed if any(item in bad for item in _items_around(path))}


def untolerated_items(plan: Plan, facts: Sequence[Fact]) -> int:
    """Return how many items failed before an aggregator whose definition does not state how many may."""
    return sum(
        not plan.nodes[plan.nodes[path[-2]].aggregator].tolerates
        for path in _failed_item_paths(plan, _results(facts))
    )


def _items_around(path: Path) -> Iterator[Path]:
    """Yield the items that a token is in, the outermost first."""
    return (path[: cut + 2] for cut in range(0, len(path), 2))


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
        for key, result in results.items()
        if result.status == "failed" and plan.nodes[result.node].policy == "halt"
    }


def kept_results(
    plan: Plan, facts: Sequence[Fact], again: set[Key], at: int, changed: Collection[int] = ()
) -> list[Fact]:
    """Return the results that the new execution starts with, dated at its start, so that no timeout begins earlier. The
    nodes in `changed` run again in every scope."""
    results = _results(facts)
    stale = _StaleTokens(plan, results, again, changed).keys()
    return [_kept(plan, result, at) for key, result in results.items() if key not in stale]


def _kept(plan: Plan, result: NodeResult, at: int) -> NodeResult:
    has_pin = plan.nodes[result.node].node.pin is not None and result.status == "ok"
    return replace(
        result,
        at=at,
        began=0,
        signal=None,
        kept=True,
        worker="",
        logged=False,
        pinned=result.pinned or (has_pin and not result.kept),
    )


def _results(facts: Iterable[Fact]) -> Results:
    return {(fact.node, fact.path): fact for fact in facts if isinstance(fact, NodeResult)}


class _StaleTokens:
    """Finds the tokens that depend on a rerun token, in topological order, all scopes of a node at a time."""

    def __init__(self, plan: Plan, results: Results, again: set[Key], changed: Collection[int]) -> None:
        self._plan = plan
        self._results = results
        self._stale = set(again)
        self._changed = changed
        self._scopes: dict[int, set[Path]] = {-1: {ROOT}}
        for _, path in (*results, *again):
            for cut in range(2, len(path) + 1, 2):
                self._scopes.setdefault(path[cut - 2], set()).add(path[:cut])
        if changed:
            self._add_empty_scopes()

    def _add_empty_scopes(self) -> None:
        """Add the items without results: those of nodes that have changed are not among the results."""
        for (split, path), result in self._results.items():
            if result.items:
                scopes = self._scopes.setdefault(split, set())
                scopes.update((*path, split, item) for item in range(result.items))

    def keys(self) -> set[Key]:
        for index in self._plan.graph.order:
            node = self._plan.nodes[index]
            for path in self._scopes.get(node.split, ()):
                if (index, path) not in self._stale and (index in self._changed or self._depends(node, path)):
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
        return [arrival.edge for arrival in arrived]

    def _mark_aggregators(self, node: NodePlan) -> None:
        """Mark the aggregators of stale items: an aggregator depends on every item."""
        for edge in node.out:
            target = self._plan.nodes[self._plan.dst[edge]]
            if target.joins_items and target.split_of == node.split:
                for path in self._scopes.get(node.split, ()):
                    if (node.index, path) in self._stale:
                        self._stale.add((target.index, path[:-2]))


class CarriedOver(msgspec.Struct, frozen=True):
    """Results in terms of another plan, the nodes that have changed, and the tokens whose edges would be resolved
    otherwise."""

    results: list[NodeResult]
    changed: frozenset[int]
    rerouted: set[tuple[int, Path]]


def carry_over(old: Plan, new: Plan, facts: Iterable[Fact], move_value: MoveValue) -> CarriedOver:
    """Return the results of `old` that a rerun with `new` may keep."""
    return _CarryOver(old, new, move_value).run(facts)


class _CarryOver:
    def __init__(self, old: Plan, new: Plan, move_value: MoveValue) -> None:
        self._old = old
        self._new = new
        self._move_value = move_value
        self._old_edges = _edge_names(old)
        self._new_edges = _edge_names(new)
        self._edge_at = {name: edge for edge, name in enumerate(self._new_edges)}
        same = {index for index, name in enumerate(new.ids) if self._is_same(index, name)}
        self._changed = frozenset(range(len(new.ids))) - same
        self._node_at = {old.index[new.ids[index]]: index for index in same}

    def run(self, facts: Iterable[Fact]) -> CarriedOver:
        results: list[NodeResult] = []
        rerouted: set[tuple[int, Path]] = set()
        for fact in facts:
            if not isinstance(fact, NodeResult):
                continue
            try:
                moved = self._moved(fact)
            except KeyError:  # of a node that has changed, or with a payload of one
                continue
            results.append(moved)
            if self._is_rerouted(fact, moved):
                rerouted.add((moved.node, moved.path))
        return CarriedOver(results, self._changed, rerouted)

    def _is_same(self, index: int, name: str) -> bool:
        old_index = self._old.index.get(name)
        if old_index is None:
            return False
        old, new = self._old.nodes[old_index], self._new.nodes[index]
        return (
            old.type.name == new.type.name
            and old.node.pin == new.node.pin
            and (old.opens, old.is_join) == (new.opens, new.is_join)
            and (old_index in self._old.triggers) == (index in self._new.triggers)
            and [self._old_edges[edge] for edge in old.in_edges]
            == [self._new_edges[edge] for edge in new.in_edges]
        )

    def _moved(self, result: NodeResult) -> NodeResult:
        """Return a result in terms of the new plan."""
        ref = self._moved_ref(Ref("result", result.node, result.path))
        return replace(
            result,
            node=ref.node,
            path=ref.path,
            payload=None if result.payload is None else self._moved_ref(result.payload),
            error=None if result.error is None else self._moved_ref(result.error),
            value=None if result.value is None else self._move_value(result.value, self._moved_ref),
            arrived=tuple(
                Arrived(self._edge_at[self._old_edges[arrival.edge]], self._moved_ref(arrival.payload))
                for arrival in result.arrived
            ),
        )

    def _moved_ref(self, ref: Ref) -> Ref:
        """Return a reference in terms of the new plan; raise KeyError if one of its nodes has changed."""
        if ref.kind == "start":
            return ref
        path: list[int] = []
        for split, item in zip(ref.path[::2], ref.path[1::2], strict=True):
            path += (self._node_at[split], item)
        return Ref(ref.kind, self._node_at[ref.node], tuple(path))

    def _is_rerouted(self, before: NodeResult, after: NodeResult) -> bool:
        """Return whether an edge that both plans have would be resolved otherwise, or a failure handled otherwise."""
        old, new = self._old.nodes[before.node], self._new.nodes[after.node]
        if before.status == "failed" and old.policy != new.policy:
            return True
        if before.items is not None:
            return False
        if before.status == "ok" and before.outlet not in new.by_outlet:
            return True
        both = {self._old_edges[edge] for edge in old.out} & {self._new_edges[edge] for edge in new.out}
        alive = {self._old_edges[edge] for edge in routes(old, before).alive}
        return both & alive != both & {self._new_edges[edge] for edge in routes(new, after).alive}


def _edge_names(plan: Plan) -> list[EdgeName]:
    """Return what each edge connects; a number tells edges with the same ends apart."""
    counts: Counter[tuple[str, str, str | None, bool]] = Counter()
    names: list[EdgeName] = []
    for edge in plan.definition.edges:
        ends = (edge.src, edge.dst, edge.label, edge.is_error)
        names.append((*ends, counts[ends]))
        counts[ends] += 1
    return names
