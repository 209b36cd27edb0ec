"""Progress of a running execution: a live display on a terminal, otherwise a line every few seconds.

Each event is counted in constant time, however large the execution is.
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
from rune.core.execution.retry import retry_due
from rune.core.execution.token import Path, Token, token_name
from rune.core.plan.model import Plan
from rune.ports.processes import LoggedLine

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table
    from rich.text import Text

FRAME_INTERVAL_S = 0.2
LINE_INTERVAL_S = 5.0
BAR_WIDTH = 24

Key = tuple[int, Path]


class NodeProgress(msgspec.Struct):
    """Counts of one node. `total` is the number of items: of a split, or of the split around the node."""

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
    due: int | None = None  # the earliest time at which a wait ends
    message: str = ""  # the last progress report of the node

    @property
    def ended(self) -> int:
        return self.success + self.failed + self.skipped + self.cancelled

    @property
    def status(self) -> str:
        """The most relevant status of the node's runs."""
        if self.running:
            return "running"
        if self.waiting:
            return "waiting"
        found = [name for name in ("failed", "success", "cancelled", "skipped") if getattr(self, name)]
        return found[0] if found else "pending"


class ProgressCounter:
    """Observes one execution and counts the runs of its nodes by status.

    A run is counted once, however often it is observed: a process that resumes an execution reads its results from the
    journal, and observes some of them again when it applies them.
    """

    def __init__(self, execution: str) -> None:
        self.execution = execution
        self.version = 0
        self._lines: list[NodeProgress] = []
        self._plan: Plan | None = None
        self._early: list[Decision] = []
        self._ended: set[Key] = set()
        self._skipped: set[Key] = set()
        self._lost: set[Path] = set()  # items that failed
        self._running: set[Key] = set()
        self._waiting: dict[Key, int] = {}
        self._dues: list[list[tuple[int, Path]]] = []

    def begin(self, plan: Plan, execution: str) -> None:
        """Set the plan and the execution; decisions observed earlier are counted now."""
        early, self._early = self._early, []
        if execution != self.execution:
            self.execution, early = execution, []
        self._plan = plan
        self._lines = [NodeProgress(node.id, node.depth > 0) for node in plan.nodes]
        self._dues = [[] for _ in plan.nodes]
        self._ended, self._skipped, self._lost = set(), set(), set()
        for trigger in plan.triggers:
            self._lines[trigger].success = 1
        for decision in early:
            self.add(decision)

    def claimed(self, execution: str, token: Token) -> None:
        """Count a token that starts to run."""
        if execution != self.execution or self._plan is None:
            return
        if token.key in self._running or token.key in self._ended:
            return
        self._remove(token.key)
        self._running.add(token.key)
        self._lines[token.node].running += 1
        self._lines[token.node].attempt = token.attempt
        self.version += 1

    def applied(self, execution: str, decisions: Sequence[Decision]) -> None:
        """Count decisions that were applied."""
        if execution != self.execution:
            return
        if self._plan is None:
            self._early += decisions
            return
        for decision in decisions:
            self.add(decision)

    def progressed(self, execution: str, token: Token, text: str) -> None:
        """Store the progress report of a running node; the last one of several items wins."""
        if execution == self.execution and token.key in self._running:
            self._lines[token.node].message = text
            self.version += 1

    def logged(self, execution: str, line: LoggedLine) -> None:
        """Lines are printed, not counted."""

    def add(self, decision: Decision) -> None:
        self.version += 1
        key = (decision.node, decision.path)
        line, fact = self._lines[decision.node], decision.fact
        if key in self._ended:
            return
        self._remove(key)
        if isinstance(fact, NodeResult):
            self._ended.add(key)
            name = "success" if fact.status == "ok" else fact.status
            setattr(line, name, getattr(line, name) + 1)
            if fact.items is not None:
                self._add_items(decision.node, fact.items)
        elif isinstance(fact, AttemptFailed | NodeSuspended):
            self._wait(key, fact)
        elif fact is None and decision.effects:  # without effects it only starts more items
            self._skip(decision.node, decision.path)
        for effect in decision.effects:
            if isinstance(effect, SkipNode) and self._is_item_of(effect.node, decision.path):
                self._skip(effect.node, decision.path)
            elif isinstance(effect, UncollectedFailure) or (
                isinstance(effect, CollectItem) and effect.mark == FAILED
            ):
                self._count_failed_item(decision.path)

    def skipped(self, keys: Iterable[Key]) -> None:
        """Replace the counts of skipped runs by all that are known now."""
        self._skipped.clear()
        for line in self._lines:
            line.skipped = 0
        for node, path in keys:
            if self._is_item_of(node, path):
                self._skip(node, path)

    def _skip(self, node: int, path: Path) -> None:
        if (node, path) not in self._skipped:
            self._skipped.add((node, path))
            self._lines[node].skipped += 1

    def _count_failed_item(self, item: Path) -> None:
        if item not in self._lost:
            self._lost.add(item)
            self._lines[item[-2]].lost += 1

    def _is_item_of(self, node: int, path: Path) -> bool:
        """Return whether the path is an item of the node: the body of an empty split is skipped outside of any item."""
        assert self._plan is not None
        return len(path) == 2 * self._plan.nodes[node].depth

    def _remove(self, key: Key) -> None:
        line = self._lines[key[0]]
        if key in self._running:
            self._running.remove(key)
            line.running -= 1
            if not line.running:
                line.message = ""
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

    def _add_items(self, split: int, count: int) -> None:
        assert self._plan is not None
        self._lines[split].total = (self._lines[split].total or 0) + count
        for node in self._plan.nodes:
            if node.split == split:
                self._lines[node.index].total = (self._lines[node.index].total or 0) + count

    def lines(self) -> list[NodeProgress]:
        """Return the current counts of every node, in the order of the plan."""
        assert self._plan is not None
        for node in self._plan.nodes:
            line = self._lines[node.index]
            dues = self._dues[node.index]
            while dues and self._waiting.get((node.index, dues[0][1])) != dues[0][0]:
                heappop(dues)
            line.due = dues[0][0] if dues else None
            if node.fans_out and line.total is not None:
                # Each node inside ends once per item, possibly as skipped: the slowest one gives the ended items.
                inner = [
                    self._lines[each.index].ended for each in self._plan.nodes if each.split == node.index
                ]
                line.done = min([line.total, *inner])
        return self._lines


class Progress(Protocol):
    """Displays the counts of a ProgressCounter."""

    pause: float

    def refresh(self) -> None:
        """Show the current counts."""

    def write(self, text: str) -> None:
        """Print a line that stays."""

    def close(self) -> None:
        """Clear the display."""


def progress(counter: ProgressCounter) -> Progress:
    """Return a live display if stdout is a terminal, otherwise plain lines."""
    return LiveProgress(counter) if sys.stdout.isatty() else PlainProgress(counter)


def now() -> int:
    return time.time_ns() // 1_000_000


def state_of(line: NodeProgress, at: int) -> str:
    """Describe the state of a node."""
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
        parts.append(f"next {_countdown(line.due, at)}")
    return ", ".join(parts) + _message(line)


def _message(line: NodeProgress) -> str:
    return f": {clean(line.message)}" if line.message and line.running else ""


def _single(line: NodeProgress, at: int) -> str:
    if not line.waiting:
        status = line.status if line.attempt == 1 else f"{line.status}, attempt {line.attempt}"
        return status + _message(line)
    if line.due is None:
        return "waiting for a signal"
    if line.attempt > 1:
        return f"attempt {line.attempt} {_countdown(line.due, at)}"
    return f"waiting, {_countdown(line.due, at)}" + (
        f" ({moment(line.due)})" if line.due - at > 60_000 else ""
    )


def _countdown(due: int, at: int) -> str:
    return f"in {duration(-(-(due - at) // 1000) * 1000)}" if due > at else "now"


def worth_showing(lines: list[NodeProgress], most: int) -> list[NodeProgress]:
    """Return at most `most` nodes: active ones before ended ones, ended ones before pending ones."""
    if len(lines) <= most:
        return lines
    rank = {"running": 0, "waiting": 0, "failed": 1, "pending": 3}
    chosen = sorted(range(len(lines)), key=lambda i: (rank.get(lines[i].status, 2), i))[:most]
    return [lines[i] for i in sorted(chosen)]


class PlainProgress:
    """Prints one line on stderr every few seconds, if anything has changed."""

    pause = LINE_INTERVAL_S

    def __init__(self, counter: ProgressCounter) -> None:
        self._counter = counter
        self._seen = -1
        self._began = time.monotonic()

    def refresh(self) -> None:
        if self._seen == self._counter.version:
            return
        self._seen = self._counter.version
        at = now()
        parts: list[str] = []
        for line in self._counter.lines():
            if line.total is not None and not line.inside and line.done != line.total:
                failed = f", {line.lost:,} failed" if line.lost else ""
                parts.append(f"{line.node} {line.done or 0:,}/{line.total:,}{failed}")
            elif line.status in {"running", "waiting"}:
                parts.append(f"{line.node} {state_of(line, at)}")
        shown = "; ".join(parts[:8]) + ("; …" if len(parts) > 8 else "")
        spent = duration((time.monotonic() - self._began) * 1000)
        print(
            clean(f"{self._counter.execution} after {spent}: {shown or 'running'}"),
            file=sys.stderr,
            flush=True,
        )

    def write(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    def close(self) -> None:
        """Do nothing: printed lines stay."""


class LiveProgress:
    """Redraws every node with its state in place. A run that ends before the first frame shows nothing."""

    pause = FRAME_INTERVAL_S

    def __init__(self, counter: ProgressCounter) -> None:
        self._counter = counter
        self._live: Live | None = None
        self._began = time.monotonic()

    def refresh(self) -> None:
        if self._live is None:
            self._live = self._open()  # imports rich
        began = time.perf_counter()
        self._live.update(self._table(), refresh=True)
        # A frame that takes long to draw is drawn less often.
        self.pause = max(FRAME_INTERVAL_S, 10 * (time.perf_counter() - began))

    def _open(self) -> Live:
        from rich.console import Console  # noqa: PLC0415 - only a live display needs it
        from rich.live import Live  # noqa: PLC0415 - only a live display needs it

        # Frames go to the stream of this moment, and `sys.stdout` stays as it is: nodes replace it while they run, and
        # a console that looked it up for each frame would find a stream that writes to the console.
        console = Console(file=sys.stdout, highlight=False)
        live = Live(console=console, auto_refresh=False, transient=True, redirect_stdout=False)
        live.start()
        return live

    def _table(self) -> Table:
        from rich.table import Table  # noqa: PLC0415 - only a live display needs it
        from rich.text import Text  # noqa: PLC0415 - only a live display needs it

        assert self._live is not None
        lines = self._counter.lines()
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

    def write(self, text: str) -> None:
        if self._live is None:
            print(text, file=sys.stderr, flush=True)
            return
        from rich.text import Text  # noqa: PLC0415 - only a live display needs it

        self._live.console.print(Text.from_ansi(text))  # above the display

    def close(self) -> None:
        if self._live is not None:
            self._live.stop()


def _bar(line: NodeProgress) -> Text:
    from rich.text import Text  # noqa: PLC0415 - only a live display needs it

    if line.total is None:
        return Text()
    done = line.done if line.done is not None else line.ended
    filled = BAR_WIDTH * min(done, line.total) // line.total if line.total else BAR_WIDTH
    bad = min(filled, -(-BAR_WIDTH * (line.lost or line.failed) // line.total)) if line.total else 0
    return Text.assemble(
        ("━" * (filled - bad), "green"),
        ("━" * bad, "red"),
        ("━" * (BAR_WIDTH - filled), "bright_black"),
        f" {done:,}/{line.total:,}",
    )
