"""The counts of an execution: the node runs and the items of each split, by state.

They are sums over the overview, which is the one fold of the facts for display. The graph, the roll-ups of a stream,
the progress display of the command line and, through the API, the web interface show these counts.

A node inside splits counts once for each item, so that its counts add up to the items of its split. An item counts by
its worst state, that of the items inside it included; it is done once it was reached and nothing in it is open. A
failed item is one that the engine counts as failed, as `failed_items` of the history does: an error in it that no node
handles reached its aggregator, or no aggregator collects it. So an item with a failed node whose error another node
handled is in the state `failed`, and is no failed item.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from rune.core.execution.token import ROOT, Path
from rune.ports.processes import RunningNode
from rune.runtime.queries.overview import Items, Overview, Run
from rune.runtime.queries.scope_states import (
    NOT_REACHED,
    PENDING,
    QUEUED,
    RETRYING,
    RUNNING,
    STATES,
    SUCCESS,
    WAITING,
)


class SplitCounts(msgspec.Struct):
    """The items of one split, in all lineages of the counted scope, and the runs of the nodes directly inside it."""

    nodes: dict[int, Counter[int]]
    states: Counter[int] = msgspec.field(default_factory=Counter)
    items: int = 0
    done: int = 0
    failed_items: int = 0


class Counts:
    """The counts of an execution, or of those of its items that contain a lineage or lie inside it. `running`: the
    nodes that workers report to run, which no fact tells."""

    def __init__(self, overview: Overview, lineage: Path = ROOT, running: Sequence[RunningNode] = ()) -> None:
        self._overview = overview
        self._lineage = lineage
        self._running: dict[int, dict[tuple[int, Path], RunningNode]] = {}
        for each in running if not overview.final else ():
            if compatible(each.path, lineage):
                split = each.path[-2] if each.path else -1
                self._running.setdefault(split, {})[(each.node, each.path)] = each

    def root(self) -> dict[int, int]:
        """Return the states of the nodes outside of items."""
        overview = self._overview
        states = dict(zip(overview.nodes_in(-1), overview.root_states().states, strict=True))
        for run in self._running.get(-1, {}).values():
            if begins(states.get(run.node, SUCCESS), overview.run(run.node, ROOT), run):
                states[run.node] = RUNNING
        return states

    def tables(self, split: int) -> list[Items]:
        """Return the items of a split that are counted, one table for each lineage."""
        return [each for each in self._overview.tables(split) if compatible(each.path, self._lineage)]

    def split(self, split: int) -> SplitCounts:
        """Return the counts of one split."""
        nodes = self._overview.nodes_in(split)
        counts = SplitCounts({node: Counter() for node in nodes})
        for items in self.tables(split):
            for shape, count in self._overview.counts(items):
                counts.items += count
                counts.states[shape.worst] += count
                counts.done += count if not shape.open and shape.worst != NOT_REACHED else 0
                counts.failed_items += count if shape.failed else 0
                for node, state in zip(nodes, shape.states, strict=True):
                    counts.nodes[node][state] += count
        self._add_running(split, counts)
        return counts

    def _add_running(self, split: int, counts: SplitCounts) -> None:
        items: dict[Path, int] = {}
        for run in self._running.get(split, {}).values():
            before = self.state_before(run)
            if before is not None:
                _move(counts.nodes[run.node], before, RUNNING)
                table = self._overview.items_of(split, run.path[:-2])
                assert table is not None
                items[run.path] = self._overview.item_states(table, run.path[-1]).worst
        for worst in items.values():
            if worst in (PENDING, QUEUED, WAITING, RETRYING):
                _move(counts.states, worst, RUNNING)

    def state_before(self, run: RunningNode) -> int | None:
        """Return the state by the facts of a node that a worker reports to run in an item; None if the item is not
        known, or if the facts are newer than the report."""
        items = self._overview.items_of(run.path[-2], run.path[:-2])
        if items is None or run.path[-1] >= items.count or run.node not in items.columns:
            return None
        before = self._overview.item_states(items, run.path[-1]).states[items.nodes.index(run.node)]
        return before if begins(before, self._overview.run(run.node, run.path), run) else None


def begins(state: int, known: Run | None, run: RunningNode) -> bool:
    """Return whether a run that a worker reports is newer than the state of its node. A node that waited runs on in the
    attempt in which it began to wait."""
    if state in (PENDING, QUEUED):
        return True
    if state not in (RETRYING, WAITING) or known is None:
        return False
    resumed = state == WAITING and run.attempt == known.attempts and run.since >= known.latest
    return run.attempt > known.attempts or resumed


def compatible(path: Path, lineage: Path) -> bool:
    """Return whether a scope contains the lineage or lies inside it."""
    common = min(len(path), len(lineage))
    return path[:common] == lineage[:common]


def named(counts: Mapping[int, int]) -> dict[str, int]:
    """Return counts by the names of their states, without those that are 0."""
    return {STATES[state]: count for state, count in sorted(counts.items()) if count}


def _move(counts: Counter[int], before: int, after: int) -> None:
    counts[before] -= 1
    counts[after] += 1
