"""A tally: how far each node of one execution has come. Counting costs the same at any size.

Progress of a run while it lasts: a live picture on a terminal, a line now and then elsewhere.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Sequence
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Protocol

import msgspec

from rune.cli.output import COLOURS, clean, count, duration, moment
from rune.core.execution.decision import FAILED, CollectItem, Decision, SkipNode, UncollectedFailure
from rune.core.execution.fact import AttemptFailed, NodeResult, NodeSuspended
from rune.core.execution.step import retry_due
from rune.core.execution.token import Path, Token, token_name
from rune.core.plan.model import Plan

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table
    from rich.text import Text

Key = tuple[int, Path]


class NodeProgress(msgspec.Struct):
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


class ProgressCounter:
    """Looks on while one execution runs."""

    def __init__(self, execution: str) -> None:
        self.execution = execution
        self.version = 0
        self._lines: list[NodeProgress] = []
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
        self._lines = [NodeProgress(node.id, node.depth > 0) for node in plan.nodes]
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
        if isinstance(fact, NodeResult):
            name = "success" if fact.status == "ok" else fact.status
            setattr(line, name, getattr(line, name) + 1)
            if fact.items is not None:
                self._spread(decision.node, fact.items)
        elif isinstance(fact, AttemptFailed | NodeSuspended):
            self._wait(key, fact)
        elif fact is None and decision.effects:  # without effects it only starts more items
            line.skipped += 1
        for effect in decision.effects:
            if isinstance(effect, SkipNode) and self._lives_in(effect.node, decision.path):
                self._lines[effect.node].skipped += 1
            elif isinstance(effect, UncollectedFailure) or (
                isinstance(effect, CollectItem) and effect.mark == FAILED
            ):
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

    def _wait(self, key: Key, fact: AttemptFailed | NodeSuspended) -> None:
        assert self._plan is not None
        node = self._plan.nodes[key[0]]
        due = fact.due if isinstance(fact, NodeSuspended) else None
        if isinstance(fact, AttemptFailed):
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

    def lines(self) -> list[NodeProgress]:
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


FRAME = 0.2  # s between pictures
LINE = 5.0  # s between lines
BAR = 24


class Progress(Protocol):
    """Shows a tally."""

    pause: float

    def refresh(self) -> None:
        """Show how it stands."""

    def close(self) -> None:
        """Leave the screen as it was."""


def progress(tally: ProgressCounter) -> Progress:
    """What suits the place that stdout leads to."""
    return LiveProgress(tally) if sys.stdout.isatty() else PlainProgress(tally)


def now() -> int:
    return time.time_ns() // 1_000_000


def state_of(line: NodeProgress, at: int) -> str:
    """A node in words."""
    if not line.inside and line.total is None:
        return _single(line, at)
    parts = [
        f"{getattr(line, name):,} {name}"
        for name in ("running", "waiting", "failed", "skipped", "cancelled")
        if getattr(line, name)
    ]
    if line.lost:
        parts.append(f"{count(line.lost, 'item')} failed")
    if line.due is not None:
        parts.append(f"next {_left(line.due, at)}")
    return ", ".join(parts) + _said(line)


def _said(line: NodeProgress) -> str:
    return f": {clean(line.said)}" if line.said and line.running else ""


def _single(line: NodeProgress, at: int) -> str:
    if not line.waiting:
        status = line.status if line.attempt == 1 else f"{line.status}, attempt {line.attempt}"
        return status + _said(line)
    if line.due is None:
        return "waiting for a signal"
    if line.attempt > 1:
        return f"attempt {line.attempt} {_left(line.due, at)}"
    return f"waiting, {_left(line.due, at)}" + (f" ({moment(line.due)})" if line.due - at > 60_000 else "")


def _left(due: int, at: int) -> str:
    return f"in {duration(-(-(due - at) // 1000) * 1000)}" if due > at else "now"


def worth_showing(lines: list[NodeProgress], most: int) -> list[NodeProgress]:
    """At most so many: what moves before what has ended, what has ended before what has not begun."""
    if len(lines) <= most:
        return lines
    rank = {"running": 0, "waiting": 0, "failed": 1, "pending": 3}
    chosen = sorted(range(len(lines)), key=lambda i: (rank.get(lines[i].status, 2), i))[:most]
    return [lines[i] for i in sorted(chosen)]


class PlainProgress:
    """For logs: one line on stderr every few seconds, if anything has changed."""

    pause = LINE

    def __init__(self, tally: ProgressCounter) -> None:
        self._tally = tally
        self._seen = -1
        self._began = time.monotonic()

    def refresh(self) -> None:
        if self._seen == self._tally.version:
            return
        self._seen = self._tally.version
        at = now()
        parts: list[str] = []
        for line in self._tally.lines():
            if line.total is not None and not line.inside and line.done != line.total:
                failed = f", {line.lost:,} failed" if line.lost else ""
                parts.append(f"{line.node} {line.done or 0:,}/{line.total:,}{failed}")
            elif line.status in {"running", "waiting"}:
                parts.append(f"{line.node} {state_of(line, at)}")
        shown = "; ".join(parts[:8]) + ("; …" if len(parts) > 8 else "")
        spent = duration((time.monotonic() - self._began) * 1000)
        print(
            clean(f"{self._tally.execution} after {spent}: {shown or 'under way'}"),
            file=sys.stderr,
            flush=True,
        )

    def close(self) -> None:
        """Lines stay."""


class LiveProgress:
    """For people: every node with its state, redrawn in place. A run that is over in a blink shows none."""

    pause = FRAME

    def __init__(self, tally: ProgressCounter) -> None:
        self._tally = tally
        self._live: Live | None = None
        self._began = time.monotonic()

    def refresh(self) -> None:
        began = time.perf_counter()
        if self._live is None:
            self._live = self._open()
        self._live.update(self._table(), refresh=True)
        # A picture that takes long to draw is drawn less often.
        self.pause = max(FRAME, 10 * (time.perf_counter() - began))

    def _open(self) -> Live:
        from rich.console import Console
        from rich.live import Live

        live = Live(console=Console(highlight=False), auto_refresh=False, transient=True)
        live.start()
        return live

    def _table(self) -> Table:
        from rich.table import Table
        from rich.text import Text

        assert self._live is not None
        lines = self._tally.lines()
        shown = worth_showing(lines, max(3, self._live.console.height - 3))
        table = Table(box=None, pad_edge=False, show_header=False)
        at = now()
        for line in shown:
            style = {"grey": "bright_black"}.get(
                COLOURS.get(line.status, "grey"), COLOURS.get(line.status, "grey")
            )
            name = Text(("  " if line.inside else "") + clean(line.node), style=style)
            table.add_row(name, _bar(line), Text(state_of(line, at), style=style))
        ended = sum(line.status not in {"running", "waiting", "pending"} for line in lines)
        hidden = f", {len(lines) - len(shown)} more not shown" if len(shown) < len(lines) else ""
        spent = duration(1000 * int(time.monotonic() - self._began))
        table.add_row(
            Text(f"{ended}/{len(lines)} nodes, {spent}{hidden}", style="bright_black"), Text(), Text()
        )
        return table

    def close(self) -> None:
        if self._live is not None:
            self._live.stop()


def _bar(line: NodeProgress) -> Text:
    from rich.text import Text

    if line.total is None:
        return Text()
    done = line.done if line.done is not None else line.ended
    filled = BAR * min(done, line.total) // line.total if line.total else BAR
    bad = min(filled, -(-BAR * (line.lost or line.failed) // line.total)) if line.total else 0
    return Text.assemble(
        ("━" * (filled - bad), "green"),
        ("━" * bad, "red"),
        ("━" * (BAR - filled), "bright_black"),
        f" {done:,}/{line.total:,}",
    )
