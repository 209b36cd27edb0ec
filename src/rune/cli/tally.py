"""A tally: how far each node of one execution has come. Counting costs the same at any size."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heappop, heappush

import msgspec

from rune.core.effect import FAILED, Decision, Gather, Skip, Uncollected
from rune.core.fact import Attempt, Result, Suspension
from rune.core.lineage import Path
from rune.core.plan import Plan
from rune.core.retry import retry_due
from rune.core.token import Token, token_name

Key = tuple[int, Path]


class Line(msgspec.Struct):
    """One node. `total`: of a split, how many items it made; of a node inside, how many there are for it."""

    node: str
    inside: bool
    success: int = 0
    failed: int = 0
    skipped: int = 0
    cancelled: int = 0
    running: int = 0
    waiting: int = 0
    attempt: int = 1
    total: int | None = None
    done: int | None = None  # items of a split that have ended
    lost: int = 0  # items of a split that failed
    due: int | None = None  # the nearest time at which a waiting one goes on
    said: str = ""  # how far the one that spoke last says it is

    @property
    def ended(self) -> int:
        return self.success + self.failed + self.skipped + self.cancelled

    @property
    def status(self) -> str:
        """What is most worth saying about it."""
        if self.running:
            return "running"
        if self.waiting:
            return "waiting"
        found = [name for name in ("failed", "success", "cancelled", "skipped") if getattr(self, name)]
        return found[0] if found else "pending"


class Tally:
    """Looks on while one execution runs."""

    def __init__(self, execution: str) -> None:
        self.execution = execution
        self.version = 0
        self._lines: list[Line] = []
        self._plan: Plan | None = None
        self._early: list[Decision] = []
        self._running: set[Key] = set()
        self._waiting: dict[Key, int] = {}
        self._dues: list[list[tuple[int, Path]]] = []

    def begin(self, plan: Plan, execution: str) -> None:
        """Say what it is a tally of; what was seen before that is counted now."""
        early, self._early = self._early, []
        if execution != self.execution:
            self.execution, early = execution, []
        self._plan = plan
        self._lines = [Line(node.id, node.depth > 0) for node in plan.nodes]
        self._dues = [[] for _ in plan.nodes]
        for trigger in plan.triggers:
            self._lines[trigger].success = 1
        for decision in early:
            self.add(decision)

    def claimed(self, execution: str, token: Token) -> None:
        """A token begins to run."""
        if execution != self.execution or self._plan is None or token.key in self._running:
            return
        self._leave(token.key)
        self._running.add(token.key)
        self._lines[token.node].running += 1
        self._lines[token.node].attempt = token.attempt
        self.version += 1

    def applied(self, execution: str, decisions: Sequence[Decision]) -> None:
        """Decisions have become true."""
        if execution != self.execution:
            return
        if self._plan is None:
            self._early += decisions
            return
        for decision in decisions:
            self.add(decision)

    def progressed(self, execution: str, token: Token, text: str) -> None:
        """A node that runs says how far it is; of several items the last one counts."""
        if execution == self.execution and token.key in self._running:
            self._lines[token.node].said = text
            self.version += 1

    def add(self, decision: Decision) -> None:
        """Count one decision."""
        self.version += 1
        key = (decision.node, decision.path)
        line, fact = self._lines[decision.node], decision.fact
        self._leave(key)
        if isinstance(fact, Result):
            name = "success" if fact.status == "ok" else fact.status
            setattr(line, name, getattr(line, name) + 1)
            if fact.items is not None:
                self._spread(decision.node, fact.items)
        elif isinstance(fact, Attempt | Suspension):
            self._wait(key, fact)
        elif fact is None and decision.effects:  # without effects it only starts more items
            line.skipped += 1
        for effect in decision.effects:
            if isinstance(effect, Skip) and self._lives_in(effect.node, decision.path):
                self._lines[effect.node].skipped += 1
            elif isinstance(effect, Uncollected) or (isinstance(effect, Gather) and effect.mark == FAILED):
                self._lines[decision.path[-2]].lost += 1

    def skipped(self, keys: Iterable[Key]) -> None:
        """What is known to be skipped, all of it."""
        for line in self._lines:
            line.skipped = 0
        for node, path in set(keys):
            if self._lives_in(node, path):
                self._lines[node].skipped += 1

    def _lives_in(self, node: int, path: Path) -> bool:
        """The body of a split without items is skipped where the split is, not in an item."""
        assert self._plan is not None
        return len(path) == 2 * self._plan.nodes[node].depth

    def _leave(self, key: Key) -> None:
        line = self._lines[key[0]]
        if key in self._running:
            self._running.remove(key)
            line.running -= 1
            if not line.running:
                line.said = ""
        if self._waiting.pop(key, None) is not None:
            line.waiting -= 1

    def _wait(self, key: Key, fact: Attempt | Suspension) -> None:
        assert self._plan is not None
        node = self._plan.nodes[key[0]]
        due = fact.due if isinstance(fact, Suspension) else None
        if isinstance(fact, Attempt):
            due = retry_due(node.retry, fact.attempt, fact.at, token_name(*key, self._plan.ids))
            self._lines[key[0]].attempt = fact.attempt + 1
        self._waiting[key] = due or 0
        self._lines[key[0]].waiting += 1
        if due is not None:
            heappush(self._dues[key[0]], (due, key[1]))

    def _spread(self, split: int, count: int) -> None:
        assert self._plan is not None
        self._lines[split].total = (self._lines[split].total or 0) + count
        for node in self._plan.nodes:
            if node.split == split:
                self._lines[node.index].total = (self._lines[node.index].total or 0) + count

    def lines(self) -> list[Line]:
        """Every node as it stands, in the order of the plan."""
        assert self._plan is not None
        for node in self._plan.nodes:
            line = self._lines[node.index]
            dues = self._dues[node.index]
            while dues and self._waiting.get((node.index, dues[0][1])) != dues[0][0]:
                heappop(dues)
            line.due = dues[0][0] if dues else None
            if node.fans_out and line.total is not None:
                # Each node inside ends once an item, be it as skipped: the slowest says how many items have.
                inner = [
                    self._lines[each.index].ended for each in self._plan.nodes if each.split == node.index
                ]
                line.done = min([line.total, *inner])
        return self._lines
