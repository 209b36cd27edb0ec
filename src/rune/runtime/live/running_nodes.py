"""The node runs that this process executes now, and their reports while another process follows.

Nothing is sent or computed until a process follows an execution.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from rune.core.execution.token import Path, Token
from rune.errors import RuneError
from rune.ports.processes import LiveChannel, LiveReport, LoggedLine, RunningNode

MAX_REPORTED = 200
"""Running nodes of one execution in a report. Further ones are left out."""

MAX_LINES = 1_000
"""Log lines that wait for the next report. Older ones are dropped."""

Key = tuple[str, int, Path]
ProgressCallback = Callable[[str, Token, str], None]
"""Called with the id of an execution, a token and the progress of its node as text."""

LineCallback = Callable[[str, LoggedLine], None]
"""Called with the id of an execution and a line that one of its nodes logged, in any thread."""

log = logging.getLogger("rune.live")

REPORT_INTERVAL_S = 0.25
FOLLOW_TIMEOUT_S = 5.0
"""How long an execution is reported after the last request for it."""

MAX_FOLLOWED = 1_000


class RunningNodes:
    """The runs of nodes with effects, from their claim to their end. A pure node runs for less time than a report
    takes, so it is not listed."""

    def __init__(self, worker: str) -> None:
        self.worker = worker
        self.followed: Collection[str] = frozenset()
        """Executions whose log lines are kept for the next report."""
        self.on_progress: ProgressCallback | None = None
        self.on_line: LineCallback | None = None
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
        if self.on_progress is not None:
            self.on_progress(execution, token, text)

    def logged(self, execution: str, line: LoggedLine) -> None:
        """Keep a log line for the next report if its execution is followed. Callable from any thread."""
        if self.on_line is not None:
            self.on_line(execution, line)
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


class LiveSource(Protocol):
    """Provides the running nodes."""

    followed: Collection[str]

    def report(self, executions: Collection[str]) -> LiveReport:
        """Return what runs now in these executions."""


class LiveReporter:
    """Sends a report for each request, then changes, one message per interval for all executions together, while other
    processes request them."""

    def __init__(self, source: LiveSource, channel: LiveChannel) -> None:
        self._source = source
        self._channel = channel
        self._until: OrderedDict[str, float] = OrderedDict()
        self._asked = asyncio.Event()
        self._last: LiveReport | None = None

    def follows(self, execution: str) -> bool:
        """Whether a process has asked for this execution lately."""
        return execution in self._until

    async def run(self) -> None:
        """Serve requests until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._channel.serve(self._ask))
            group.create_task(self._report_changes())

    def _ask(self, executions: Sequence[str]) -> None:
        until = time.monotonic() + FOLLOW_TIMEOUT_S
        for each in executions:
            self._until[each] = until
            self._until.move_to_end(each)
        while len(self._until) > MAX_FOLLOWED:
            self._until.popitem(last=False)
        self._source.followed = self._until.keys()
        self._last = None
        self._asked.set()

    async def _report_changes(self) -> None:
        while True:
            if not self._until:
                await self._asked.wait()
            self._asked.clear()
            await self._report()
            try:
                async with asyncio.timeout(REPORT_INTERVAL_S):
                    await self._asked.wait()
            except TimeoutError:
                self._expire(time.monotonic())

    def _expire(self, now: float) -> None:
        while self._until and next(iter(self._until.values())) <= now:
            self._until.popitem(last=False)

    async def _report(self) -> None:
        report = self._source.report(self._until)
        if report == self._last:
            return
        try:
            await self._channel.report(report)
        except RuneError as error:
            log.info("what runs now is not reported: %s", error.message)
            return
        # Lines are sent once; a later report that is otherwise equal need not be sent.
        self._last = LiveReport(report.sender, report.running)
