"""Views of an overview: the graph of an execution, and the roll-ups of its splits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from rune.api.graphs import GraphState, NodeState, SplitState
from rune.api.live import Failed, SplitRollup
from rune.core.execution.token import ROOT, Path, path_text
from rune.core.plan.model import Plan
from rune.ports.clock import iso
from rune.ports.processes import RunningNode
from rune.runtime.queries.overview import Items, Overview
from rune.runtime.queries.scope_states import (
    CANCELLED,
    FAILED,
    NOT_REACHED,
    OPEN,
    PENDING,
    QUEUED,
    RETRYING,
    RUNNING,
    SKIPPED,
    STATES,
    SUCCESS,
    WAITING,
    EdgeState,
    ScopeStates,
)

_EDGE_ORDER: tuple[EdgeState, ...] = ("error", "alive", "pending", "dead")
_NODE_ORDER = (FAILED, RUNNING, QUEUED, RETRYING, WAITING, PENDING, CANCELLED, NOT_REACHED, SUCCESS, SKIPPED)


def graph_view(
    overview: Overview,
    lineage: Path = ROOT,
    running: Sequence[RunningNode] = (),
) -> GraphState:
    """Return the graph of an execution, with the exact states of one item if a lineage is given. `running`: the nodes
    that workers run now."""
    plan, end = overview.plan, overview.end
    building = _Building(overview, lineage)
    building.add_scope(overview.root_states(), ROOT, -1)
    for split in _splits(plan):
        building.add_split(split)
    if end is None:
        for each in running:
            building.mark_running(each)
    return GraphState(
        number=overview.number,
        status=end.status if end is not None else "paused" if overview.paused else "running",
        nodes={plan.ids[node]: building.nodes[node] for node in sorted(building.nodes)},
        edges={plan.definition.edges[edge].id: state for edge, state in sorted(building.edges.items())},
        splits=building.splits,
    )


def _splits(plan: Plan) -> list[int]:
    """Return the splits, outer ones before those inside them."""
    return [node for node in plan.graph.order if plan.nodes[node].fans_out]


class _Building:
    def __init__(self, overview: Overview, lineage: Path) -> None:
        self._overview = overview
        self._plan = overview.plan
        self._lineage = lineage
        self.nodes: dict[int, NodeState] = {}
        self.edges: dict[int, EdgeState] = {}
        self.splits: dict[str, SplitState] = {}

    def add_scope(self, found: ScopeStates, path: Path, split: int) -> None:
        """Add the nodes directly inside one scope."""
        for node, state in zip(self._overview.nodes_in(split), found.states, strict=True):
            self.nodes[node] = self._exact(node, path, state)
        self.edges.update(found.edges)

    def _exact(self, node: int, path: Path, state: int) -> NodeState:
        overview = self._overview
        run = overview.run(node, path)
        if run is not None:
            return NodeState(
                state=STATES[state],
                attempts=run.attempts,
                started_at=iso(run.began) if run.began else None,
                duration_ms=max(0, run.ended - run.began) if run.ended else None,
                due=iso(run.due) if run.due is not None and state in OPEN else None,
                code=run.code,
            )
        if node in self._plan.triggers and not path:
            return NodeState(state=STATES[state], attempts=1, started_at=iso(overview.started_at))
        items = overview.items_of(path[-2], path[:-2]) if path else None
        column = None if items is None else items.columns.get(node)
        if column is None or items is None or not column.attempts[path[-1]]:
            return NodeState(state=STATES[state])
        item = path[-1]
        return NodeState(
            state=STATES[state],
            attempts=column.attempts[item],
            duration_ms=column.durations[item],
            code=overview.codes[column.codes[item]],
        )

    def add_split(self, split: int) -> None:
        """Add the nodes directly inside a split: of one item if the lineage names it, of all items otherwise."""
        overview, lineage = self._overview, self._lineage
        tables = [each for each in overview.tables(split) if _compatible(each.path, lineage)]
        counts = [(each, overview.counts(each)) for each in tables]
        self._count_items(split, counts)
        place = next(
            (at for at in range(0, len(lineage), 2) if lineage[at] == split),
            None,
        )
        items = None if place is None else overview.items_of(split, lineage[:place])
        if place is not None and items is not None and lineage[place + 1] < items.count:
            path = lineage[: place + 2]
            self.add_scope(overview.item_states(items, path[-1]), path, split)
            return
        self._add_all(split, counts)

    def _count_items(self, split: int, counts: Iterable[tuple[Items, Counter[tuple[int, ...]]]]) -> None:
        states: Counter[int] = Counter()
        for items, signatures in counts:
            for signature, count in signatures.items():
                states[self._overview.states(items, signature).worst] += count
        total = sum(states.values())
        self.splits[self._plan.ids[split]] = SplitState(
            items=total,
            done=total - sum(count for state, count in states.items() if state in OPEN),
            counts=_named(states),
        )

    def _add_all(self, split: int, counts: Iterable[tuple[Items, Counter[tuple[int, ...]]]]) -> None:
        nodes = self._overview.nodes_in(split)
        by_node: dict[int, Counter[int]] = {node: Counter() for node in nodes}
        edges: dict[int, set[EdgeState]] = {}
        for items, signatures in counts:
            for signature, count in signatures.items():
                found = self._overview.states(items, signature)
                for node, state in zip(nodes, found.states, strict=True):
                    by_node[node][state] += count
                for edge, state_of_edge in found.edges.items():
                    edges.setdefault(edge, set()).add(state_of_edge)
        without_items = self._state_without_items(split)
        for node, states in by_node.items():
            state = next((each for each in _NODE_ORDER if states[each]), without_items)
            self.nodes[node] = NodeState(state=STATES[state], counts=_named(states) or None)
            for edge in self._plan.nodes[node].out:
                known = edges.get(edge, ())
                self.edges[edge] = next(
                    (each for each in _EDGE_ORDER if each in known),
                    "dead" if without_items == SKIPPED else "pending",
                )

    def mark_running(self, run: RunningNode) -> None:
        """Show a node as running that a worker reports. The facts may be newer than the report: only a node that has
        not begun, or that waits for the attempt which was reported, is changed."""
        shown = self.nodes.get(run.node)
        if shown is None:
            return
        if shown.counts is None:
            if _compatible(run.path, self._lineage) and _begins(shown.state, shown.attempts, run.attempt):
                self.nodes[run.node] = NodeState(
                    state=STATES[RUNNING],
                    attempts=run.attempt,
                    started_at=shown.started_at or iso(run.since),
                    code=shown.code,
                    worker=run.worker,
                    progress=run.progress,
                )
            return
        before = self._state_in_item(run.node, run.path)
        known = self._overview.run(run.node, run.path)
        if before is None or not _begins(STATES[before], known.attempts if known else 0, run.attempt):
            return
        self._recount(run.node, before, RUNNING)

    def _recount(self, node: int, before: int, after: int) -> None:
        """Count a node in another state in one item."""
        shown = self.nodes[node]
        counts = Counter(shown.counts)
        counts[STATES[before]] -= 1
        counts[STATES[after]] += 1
        named = {name: counts[name] for name in STATES if counts[name]}
        state = next(STATES[each] for each in _NODE_ORDER if STATES[each] in named)
        self.nodes[node] = msgspec.structs.replace(shown, state=state, counts=named)

    def _state_in_item(self, node: int, path: Path) -> int | None:
        """Return the state of a node in one item; None if the graph does not count that item."""
        items = self._overview.items_of(path[-2], path[:-2]) if path else None
        if items is None or path[-1] >= items.count or not _compatible(path, self._lineage):
            return None
        return self._overview.item_states(items, path[-1]).states[items.nodes.index(node)]

    def _state_without_items(self, split: int) -> int:
        """Return the state of the nodes inside a split that has no items."""
        known = self.nodes.get(split)
        if known is None or known.state in ("pending", "queued", "running", "waiting", "retrying"):
            return PENDING
        if self._overview.end is not None and self._overview.end.status != "completed":
            return SKIPPED if known.state in ("success", "skipped") else NOT_REACHED
        return SKIPPED


def _begins(state: str, attempts: int, attempt: int) -> bool:
    """Return whether an attempt that a worker reports is newer than the state of its node."""
    if state in (STATES[PENDING], STATES[QUEUED]):
        return True
    return state in (STATES[RETRYING], STATES[WAITING]) and attempt > attempts


def _compatible(path: Path, lineage: Path) -> bool:
    """Return whether a scope contains the lineage or lies inside it."""
    common = min(len(path), len(lineage))
    return path[:common] == lineage[:common]


def _named(counts: Counter[int]) -> dict[str, int]:
    return {STATES[state]: count for state, count in sorted(counts.items()) if count}


def rollups_of(overview: Overview) -> list[SplitRollup]:
    """Return the roll-ups of an ended execution."""
    plan = overview.plan
    found: list[SplitRollup] = []
    for split in overview.splits():
        nodes: dict[str, dict[str, int]] = {}
        ended = items_total = 0
        for items in overview.tables(split):
            items_total += items.count
            for node, column in items.columns.items():
                for name, count in overview.results_in(column).items():
                    counted = nodes.setdefault(plan.ids[node], {})
                    counted[name] = counted.get(name, 0) + count
                    ended += count
        failures = [
            Failed(
                node_id=plan.ids[each.node],
                lineage=path_text(each.path, plan.ids),
                code=each.code,
                message=each.message,
            )
            for each in overview.failures.get(split, ())
        ]
        found.append(
            SplitRollup(
                failures=failures,
                split_node_id=plan.ids[split],
                items=items_total,
                nodes=nodes,
                ended=ended,
                rate=0.0,
            )
        )
    return found
