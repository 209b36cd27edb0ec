"""Roll-ups: what became of the items of each split, in counts. Their size depends on the definition alone."""

from __future__ import annotations

import time
from collections import Counter, deque

import msgspec

from rune.core.fact import Fact, Result, Suspension
from rune.core.lineage import path_text
from rune.core.plan import Plan
from rune.runtime.history import STATUS

MOST_FAILURES = 10
WINDOW = 10  # s over which the rate is taken


class Failed(msgspec.Struct, frozen=True, kw_only=True):
    """One node that failed in one item."""

    node_id: str
    lineage: str
    code: str
    message: str


class SplitRollup(msgspec.Struct, frozen=True, kw_only=True):
    """The items of a split, in all lineages: how many nodes ended how, how fast, and the first that failed."""

    failures: list[Failed]
    split_node_id: str
    items: int
    nodes: dict[str, dict[str, int]]
    ended: int
    rate: float


class Rollups:
    """Counts that grow with the facts."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._items: Counter[int] = Counter()
        self._ended: dict[int, Counter[tuple[int, str]]] = {}
        self._suspended: dict[int, Counter[int]] = {}
        self._failures: dict[int, list[Failed]] = {}
        self._recent: dict[int, deque[tuple[int, int]]] = {}

    def count(self, fact: Fact) -> None:
        """One more fact."""
        if isinstance(fact, Result) and fact.items is not None:
            self._items[fact.node] += fact.items
        if not isinstance(fact, Result | Suspension) or not fact.path:
            return
        split = fact.path[-2]
        if isinstance(fact, Suspension):
            self._suspended.setdefault(split, Counter())[fact.node] += 1
            return
        self._ended.setdefault(split, Counter())[(fact.node, STATUS.get(fact.status, fact.status))] += 1
        self._tick(split)
        if fact.failure is not None:
            self._note(split, fact)

    def _note(self, split: int, fact: Result) -> None:
        known = self._failures.setdefault(split, [])
        if len(known) < MOST_FAILURES and fact.failure is not None:
            lineage = path_text(fact.path, self._plan.ids)
            known.append(
                Failed(
                    node_id=self._plan.ids[fact.node],
                    lineage=lineage,
                    code=fact.failure.code,
                    message=fact.failure.message,
                )
            )

    def _tick(self, split: int) -> None:
        second = int(time.monotonic())
        recent = self._recent.setdefault(split, deque(maxlen=WINDOW))
        if recent and recent[-1][0] == second:
            recent[-1] = (second, recent[-1][1] + 1)
        else:
            recent.append((second, 1))

    def read(self) -> list[SplitRollup]:
        """As it stands, in the order of the definition."""
        return [self._split(split) for split in sorted({*self._items, *self._ended})]

    def _split(self, split: int) -> SplitRollup:
        ids = self._plan.ids
        ended = self._ended.get(split, Counter())
        nodes: dict[str, dict[str, int]] = {}
        for (node, status), count in sorted(ended.items()):
            nodes.setdefault(ids[node], {})[status] = count
        for node, count in sorted(self._suspended.get(split, Counter()).items()):
            waiting = count - sum(many for (other, _), many in ended.items() if other == node)
            if waiting > 0:
                nodes.setdefault(ids[node], {})["waiting"] = waiting
        since = int(time.monotonic()) - WINDOW
        recent = sum(count for second, count in self._recent.get(split, ()) if second > since)
        return SplitRollup(
            failures=list(self._failures.get(split, ())),
            split_node_id=ids[split],
            items=self._items[split],
            nodes=nodes,
            ended=sum(ended.values()),
            rate=recent / WINDOW,
        )
