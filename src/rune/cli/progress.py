"""Progress of a running execution: a live display on a terminal, otherwise a line every few seconds.

The counts are those of the graph in the API (`runtime.queries.counts`), of an overview to which facts are added as they
are observed. Adding one takes constant time, however large the execution is.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Protocol

import msgspec

from rune.cli.output import COLOURS, clean, count, duration, moment
from rune.core.execution.decision import Decision
from rune.core.execution.fact import AttemptFailed, Fact, NodeResult, NodeSuspended
from rune.core.execution.token import Path, Token
from rune.core.plan.model import Plan
from rune.ports.processes import LoggedLine, RunningNode
from rune.runtime.queries.counts import Counts
from rune.runtime.queries.overview import Overview
from rune.runtime.queries.scope_states import (
    CANCELLED,
    FAILED,
    RETRYING,
    RUNNING,
    SKIPPED,
    SUCCESS,
    WAITING,
)

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
        self._plan: Plan | None = None
        self._overview: Overview | None = None
        self._early: list[Fact] = []
        self._running: dict[Key, tuple[int, str]] = {}  # attempt and progress report
        self._dues: dict[int, list[tuple[int, Path]]] = {}

    def begin(self, plan: Plan, execution: str) -> None:
        """Set the plan and the execution; what was observed earlier is counted now."""
        early, self._early = self._early, []
        if execution != self.execution:
            self.execution, early = execution, []
        self._plan, self._overview = plan, Overview(plan, now())
        self._running, self._dues = {}, {}
        for fact in early:
            self.add(fact)

    def claimed(self, execution: str, token: Token) -> None:
        """Count a token that starts to run."""
        if execution != self.execution or self._overview is None:
            return
        key = (token.node, token.path)
        if key not in self._running:
            self._running[key] = (token.attempt, "")
            self.version += 1

    def applied(self, execution: str, decisions: Sequence[Decision]) -> None:
        """Count the facts of decisions that were applied."""
        if execution != self.execution:
            return
        facts = [decision.fact for decision in decisions if decision.fact is not None]
        if self._overview is None:
            self._early += facts
            return
        for fact in facts:
            self.add(fact)

    def progressed(self, execution: str, token: Token, text: str) -> None:
        """Store the progress report of a running node; the last one of several items wins."""
        if execution == self.execution and token.key in self._running:
            attempt, _ = self._running.pop(token.key)
            self._running[token.key] = (attempt, text)
            self.version += 1

    def logged(self, execution: str, line: LoggedLine) -> None:
        """Lines are printed, not counted."""

    def add(self, fact: Fact) -> None:
        """Count a fact, which may have been counted before."""
        assert self._overview is not None
        self.version += 1
        self._overview.add_fact(fact)
        if isinstance(fact, NodeResult):
            self._running.pop((fact.node, fact.path), None)
        elif isinstance(fact, AttemptFailed | NodeSuspended):
            self._running.pop((fact.node, fact.path), None)
            run = self._overview.run(fact.node, fact.path)
            if run is not None and run.due is not None:
                heappush(self._dues.setdefault(fact.node, []), (run.due, fact.path))

    def lines(self) -> list[NodeProgress]:
        """Return the current counts of every node, in the order of the plan."""
        plan, overview = self._plan, self._overview
        assert plan is not None
        assert overview is not None
        counts = Counts(overview, running=self._running_nodes())
        states: dict[int, Mapping[int, int]] = {node: {state: 1} for node, state in counts.root().items()}
        lines = [NodeProgress(node.id, node.depth > 0) for node in plan.nodes]
        for split in overview.splits():
            of_split = counts.split(split)
            states |= of_split.nodes
            lines[split].done, lines[split].lost = of_split.done, of_split.failed_items
            for node in (split, *of_split.nodes):
                lines[node].total = of_split.items
        for node, line in enumerate(lines):
            _count(line, states.get(node, {}))
            line.due = self._next_due(node)
            line.attempt = self._attempt(node, retrying=RETRYING in states.get(node, {}))
        for (node, _), (_, message) in self._running.items():
            lines[node].message = message or lines[node].message
        return lines

    def _running_nodes(self) -> list[RunningNode]:
        """Return the runs that began after the last fact about them, without those claimed again after their end."""
        assert self._overview is not None
        found = []
        for (node, path), (attempt, message) in list(self._running.items()):
            if self._overview.has_ended(node, path):
                del self._running[(node, path)]
                continue
            run = self._overview.run(node, path)
            found.append(RunningNode(node, path, attempt, 0 if run is None else run.latest, progress=message))
        return found

    def _next_due(self, node: int) -> int | None:
        """Return the earliest time at which a wait of the node ends."""
        assert self._overview is not None
        dues = self._dues.get(node, [])
        while dues:
            due, path = dues[0]
            run = self._overview.run(node, path)
            if run is not None and run.due == due and (node, path) not in self._running:
                return due
            heappop(dues)
        return None

    def _attempt(self, node: int, *, retrying: bool) -> int:
        """Return the attempt of a node outside of items: of the one that runs, or the one to come."""
        assert self._overview is not None
        running, run = self._running.get((node, ())), self._overview.run(node, ())
        attempt = running[0] if running is not None else run.attempts if run is not None else 1
        return max(1, attempt) + (1 if retrying else 0)


def _count(line: NodeProgress, states: Mapping[int, int]) -> None:
    """Set the counts of a node by the states of its runs."""
    line.success, line.failed = states.get(SUCCESS, 0), states.get(FAILED, 0)
    line.skipped, line.cancelled = states.get(SKIPPED, 0), states.get(CANCELLED, 0)
    line.running, line.waiting = states.get(RUNNING, 0), states.get(WAITING, 0) + states.get(RETRYING, 0)


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
