"""Views of an overview: the graph of an execution, and the roll-ups of its splits."""

from __future__ import annotations

from collections.abc import Sequence

from rune.api.graphs import GraphState, NodeState, SplitState
from rune.api.live import Failed, SplitRollup
from rune.core.execution.token import ROOT, Path, path_text
from rune.core.plan.model import Plan
from rune.ports.clock import iso
from rune.ports.processes import RunningNode
from rune.runtime.queries.counts import Counts, SplitCounts, begins, compatible, named
from rune.runtime.queries.overview import Overview
from rune.runtime.queries.scope_states import (
    CANCELLED,
    ENDED,
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
    counts = Counts(overview, lineage, running)
    building = _Building(overview, counts, lineage)
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
    def __init__(self, overview: Overview, counts: Counts, lineage: Path) -> None:
        self._overview = overview
        self._counts = counts
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
        counts = self._counts.split(split)
        self.splits[self._plan.ids[split]] = SplitState(
            items=counts.items,
            done=counts.done,
            failed_items=counts.failed_items,
            counts=named(counts.states),
        )
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

    def _add_all(self, split: int, counts: SplitCounts) -> None:
        edges: dict[int, set[EdgeState]] = {}
        for items in self._counts.tables(split):
            for shape, _ in self._overview.counts(items):
                for edge, state_of_edge in shape.edges.items():
                    edges.setdefault(edge, set()).add(state_of_edge)
        without_items = self._state_without_items(split)
        for node, states in counts.nodes.items():
            state = next((each for each in _NODE_ORDER if states[each]), without_items)
            self.nodes[node] = NodeState(state=STATES[state], counts=named(states) or None)
            for edge in self._plan.nodes[node].out:
                known = edges.get(edge, ())
                self.edges[edge] = next(
                    (each for each in _EDGE_ORDER if each in known),
                    "dead" if without_items == SKIPPED else "pending",
                )

    def mark_running(self, run: RunningNode) -> None:
        """Show a node as running that a worker reports; those that the graph counts are counted already."""
        shown = self.nodes.get(run.node)
        if shown is None or shown.counts is not None or not compatible(run.path, self._lineage):
            return
        if begins(STATES.index(shown.state), self._overview.run(run.node, run.path), run):
            self.nodes[run.node] = NodeState(
                state=STATES[RUNNING],
                attempts=run.attempt,
                started_at=shown.started_at or iso(run.since),
                code=shown.code,
                worker=run.worker,
                progress=run.progress,
            )

    def _state_without_items(self, split: int) -> int:
        """Return the state of the nodes inside a split that has no items."""
        known = self.nodes.get(split)
        if known is None or known.state in ("pending", "queued", "running", "waiting", "retrying"):
            return PENDING
        if self._overview.end is not None and self._overview.end.status != "completed":
            return SKIPPED if known.state in ("success", "skipped") else NOT_REACHED
        return SKIPPED


def rollups_of(overview: Overview, running: Sequence[RunningNode], now: int) -> list[SplitRollup]:
    """Return the roll-ups of the splits that have fanned out, in the order of the definition."""
    counts = Counts(overview, running=running)
    return [_rollup(overview, split, counts.split(split), now) for split in overview.splits()]


def _rollup(overview: Overview, split: int, counts: SplitCounts, now: int) -> SplitRollup:
    plan = overview.plan
    failures = [
        Failed(
            node_id=plan.ids[each.node],
            lineage=path_text(each.path, plan.ids),
            code=each.code,
            message=each.message,
        )
        for each in overview.failures.get(split, ())
    ]
    return SplitRollup(
        failures=failures,
        split_node_id=plan.ids[split],
        items=counts.items,
        done=counts.done,
        failed_items=counts.failed_items,
        counts=named(counts.states),
        nodes={plan.ids[node]: named(states) for node, states in counts.nodes.items() if counts.items},
        ended=sum(
            count for states in counts.nodes.values() for state, count in states.items() if state in ENDED
        ),
        rate=overview.rate(split, now),
    )
