"""What runs now: the node runs that this process executes, and those of other processes.

Nothing is sent or computed until a process follows an execution. A worker then reports over the live channel, and the
process that follows merges the reports of all workers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection

from rune.core.execution.explain import ActiveRuns, RunningAttempt
from rune.core.execution.token import Path, Token
from rune.ports.processes import (
    LiveReport,
    LoggedLine,
    RunningNode,
    RunningSnapshot,
)

MAX_REPORTED = 200
"""Running nodes of one execution in a report. Further ones are left out."""

MAX_LINES = 1_000
"""Log lines that wait for the next report. Older ones are dropped."""

Key = tuple[str, int, Path]
ProgressCallback = Callable[[str, Token, str], None]
"""Called with the id of an execution, a token and the progress of its node as text."""

LineCallback = Callable[[str, LoggedLine], None]
"""Called with the id of an execution and a line that one of its nodes logged, in any thread."""


class RunningNodes:
    """The runs of nodes with effects, from their claim to their end. A pure node runs for less time than a report
    takes, so it is not listed."""

    def __init__(
        self,
        worker: str,
        on_progress: ProgressCallback | None = None,
        on_line: LineCallback | None = None,
    ) -> None:
        self.worker = worker
        self.followed: Collection[str] = frozenset()
        """Executions whose log lines are kept for the next report."""
        self._on_progress = on_progress
        self._on_line = on_line
        self._running: dict[Key, tuple[int, int]] = {}
        self._progress: dict[Key, str] = {}
        self._lines: deque[tuple[str, LoggedLine]] = deque(maxlen=MAX_LINES)

    def begin(self, execution: str, token: Token, since: int) -> None:
        """Add a run that was claimed at this time."""
        self._running[(execution, token.node, token.path)] = (token.attempt, since)

    def end(self, execution: str, token: Token) -> None:
        key = (execution, token.node, token.path)
        self._running.pop(key, None)
        if self._progress:
            self._progress.pop(key, None)

    def progressed(self, execution: str, token: Token, text: str) -> None:
        """Keep the last progress of a run."""
        key = (execution, token.node, token.path)
        if key in self._running:
            self._progress[key] = text
        if self._on_progress is not None:
            self._on_progress(execution, token, text)

    def logged(self, execution: str, line: LoggedLine) -> None:
        """Keep a log line for the next report if its execution is followed. Callable from any thread."""
        if self._on_line is not None:
            self._on_line(execution, line)
        if execution in self.followed:
            self._lines.append((execution, line))

    def report(self, executions: Collection[str]) -> LiveReport:
        """Return what runs now in these executions, and the lines logged since the previous report."""
        lines: dict[str, list[LoggedLine]] = {}
        while self._lines:
            execution, line = self._lines.popleft()
            lines.setdefault(execution, []).append(line)
        return LiveReport(self.worker, self.nodes_of(executions), lines)

    def nodes_of(self, executions: Collection[str]) -> dict[str, list[RunningNode]]:
        """Return what runs now in these executions."""
        running: dict[str, list[RunningNode]] = {each: [] for each in executions}
        for (execution, node, path), (attempt, since) in self._running.items():
            found = running.get(execution)
            if found is not None and len(found) < MAX_REPORTED:
                progress = self._progress.get((execution, node, path), "")
                found.append(RunningNode(node, path, attempt, since, self.worker, progress))
        return running


def active_runs(snapshot: RunningSnapshot, now: int) -> ActiveRuns:
    """Return a snapshot in the form that explains an execution."""
    runs = {
        (each.node, each.path): RunningAttempt(each.worker, each.since, each.attempt, each.progress)
        for each in snapshot.nodes
    }
    return ActiveRuns(runs, now, snapshot.complete, snapshot.queues)
