"""Journals of random executions, and their counts as the rules of the engine tell them: by replaying the history.

    python -m tests.support.counted_executions

writes what a browser receives of some of them to `ui/test/counts.json`, for the test of its store.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any, NamedTuple, cast

import msgspec

from rune.api.live import Rollup
from rune.core.execution.fact import ExecutionStarted, Fact, NodeResult
from rune.core.execution.stored_value import Inline
from rune.core.execution.token import Path as ItemPath
from rune.core.plan.model import Plan
from rune.ports.journal import ExecutionRecord, StoredFact
from rune.runtime.queries.history import STATUS, History
from rune.runtime.queries.overview import Overview
from rune.server.schemas.executions import event_view
from rune.server.views.graphs import graph_view, rollups_of
from tests.simulation.case import random_case, registry
from tests.simulation.profile import random_profile
from tests.simulation.run import CheckedSimulator

BROWSER_SEEDS = (6, 84, 93, 236, 291)
"""Nested splits, waits in items, races that cancel, an execution that is cancelled: displays disagreed on them."""

BROWSER_MESSAGES = Path(__file__).parents[2] / "ui" / "test" / "counts.json"
MAX_MESSAGES = 12
NEVER = 1 << 60


class Recorded(NamedTuple):
    """An execution and its facts in commit order, those after its end as late ones."""

    plan: Plan
    facts: list[StoredFact]

    def history(self, facts: Sequence[StoredFact] = ()) -> History:
        """Return the history of the first facts. No values are read."""
        accepted = ExecutionRecord(id="x", workflow="w", hash="h", at=0, input=Inline(b"{}"))
        nothing = cast(Any, None)
        return History(accepted, self.plan, nothing, nothing, facts)


def recorded_executions(seed: int) -> Iterator[Recorded]:
    """Run the case of a seed with random faults, pauses and cancellations; yield it and its children."""
    rng = Random(f"world-{seed}")
    simulator = CheckedSimulator(random_case(seed), registry(), random_profile(rng), rng)
    simulator.run()
    for execution in simulator.executions.values():
        journal = execution.journal
        rows: list[tuple[Fact, bool]] = [
            (each, False) for each in journal.facts.values() if not isinstance(each, ExecutionStarted)
        ]
        rows += [(each, True) for each in journal.late]
        stored = [StoredFact(number, fact, late) for number, (fact, late) in enumerate(rows, start=1)]
        yield Recorded(execution.case.plan, stored)


class Expected(NamedTuple):
    """The ended node runs of an execution by node and status, and its failed items."""

    nodes: dict[str, Counter[str]]
    failed_items: int


def expected_counts(history: History) -> Expected:
    """Count what the history of an execution tells."""
    plan = history.plan
    runs: dict[tuple[int, ItemPath], str] = {(node, ()): "success" for node in plan.triggers}
    for key in history.skipped():
        if len(key[1]) == 2 * plan.nodes[key[0]].depth:  # the body of a split without items is in none
            runs[key] = "skipped"
    runs |= {key: run.status for key, run in history.cancelled()}
    results = {
        (each.fact.node, each.fact.path): each.fact
        for each in history._stored
        if isinstance(each.fact, NodeResult) and not each.late
    }
    runs |= {key: STATUS.get(each.status, each.status) for key, each in results.items()}
    if history.end is not None and history.end.status == "completed":
        runs = dict.fromkeys(_never_started(plan, results), "skipped") | runs
    nodes: dict[str, Counter[str]] = {name: Counter() for name in plan.ids}
    for (node, _), status in runs.items():
        nodes[plan.ids[node]][status] += 1
    return Expected(nodes, history.state.failed_items)


def _never_started(
    plan: Plan, results: dict[tuple[int, ItemPath], NodeResult]
) -> Iterator[tuple[int, ItemPath]]:
    """Yield the nodes of all items. Those that a cancelled fan-out did not start have no run in the history."""
    for (split, path), fan in results.items():
        for item in range(fan.items or 0):
            yield from ((node.index, (*path, split, item)) for node in plan.nodes if node.split == split)


def browser_messages(seed: int) -> dict[str, Any]:
    """Return what a page receives of an execution: events, and graphs and roll-ups with the counts to show."""
    recorded = next(recorded_executions(seed))
    history, overview = recorded.history(), Overview(recorded.plan, 0)
    step = max(1, len(recorded.facts) // MAX_MESSAGES)
    messages: list[dict[str, Any]] = []
    for stored in recorded.facts:
        overview.add(stored)
        event = history.follow(stored)
        if event.lineage == ():
            messages.append({"event": event_view(event)})
        if event.number % step == 0 or stored is recorded.facts[-1]:
            rollup = Rollup(number=overview.number, splits=rollups_of(overview, (), NEVER))
            graph = msgspec.structs.replace(graph_view(overview), edges={})
            messages.append({"graph": graph, "rollup": rollup})
    return {"seed": seed, "messages": messages}


def encoded_browser_messages() -> bytes:
    """Return the messages of all chosen executions as the file holds them."""
    made = msgspec.json.encode([browser_messages(each) for each in BROWSER_SEEDS])
    return json.dumps(json.loads(made), separators=(",", ":")).encode() + b"\n"


if __name__ == "__main__":
    BROWSER_MESSAGES.write_bytes(encoded_browser_messages())
