"""What runs now: the node runs that this process executes, and those of other processes.

Nothing is sent or computed until a process follows an execution. A worker then reports over the live channel, and the
process that follows merges the reports of all workers.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Protocol

from msgspec.structs import replace

from rune.core.execution.explain import ActiveRuns, RunningAttempt
from rune.core.execution.token import Path, Token
from rune.errors import RuneError
from rune.ports.processes import (
    LiveChannel,
    LiveReport,
    LoggedLine,
    ProcessRegistry,
    RunningNode,
    RunningSnapshot,
    served_queues,
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

log = logging.getLogger("rune.live")

REPORT_INTERVAL_S = 0.25
FOLLOW_TIMEOUT_S = 5.0
"""How long an execution is reported after the last request for it."""

MAX_FOLLOWED = 1_000


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


POLL_INTERVAL_S = 0.25
ASK_INTERVAL_S = 2.0
REPORT_TIMEOUT_S = 6.0
"""How long the report of a process counts. A worker reports at least with every request."""

ANSWER_TIMEOUT_S = 0.5
SUBSCRIBE_TIMEOUT_S = 2.0

OnChange = Callable[[Sequence[RunningNode], Sequence[LoggedLine]], None]
"""Called with all nodes that run now, and with the lines logged since the last call."""


class LiveFollower:
    """Requests and merges the reports of all processes. Without a channel, only those of this process."""

    def __init__(
        self, local: RunningNodes, channel: LiveChannel | None, processes: ProcessRegistry | None = None
    ) -> None:
        self._local = local
        self._channel = channel
        self._processes = processes
        self._followed: dict[str, OnChange] = {}
        self._needed = asyncio.Event()
        self._reports: dict[str, dict[str, tuple[float, list[RunningNode]]]] = {}
        self._shown: dict[str, list[RunningNode]] = {}
        self._answers: dict[str, list[asyncio.Queue[LiveReport]]] = {}
        self._listening = asyncio.Event()
        self._listener: asyncio.Task[None] | None = None

    def follow(self, execution: str, on_change: OnChange) -> None:
        """Call `on_change` whenever the nodes that run in this execution change."""
        self._followed[execution] = on_change
        self._needed.set()

    def unfollow(self, execution: str) -> None:
        for known in (self._followed, self._reports, self._shown):
            known.pop(execution, None)
        if not self._followed:
            self._needed.clear()

    async def running(self, execution: str, timeout_s: float = ANSWER_TIMEOUT_S) -> RunningSnapshot:
        """Return what runs now in an execution, as far as workers report it within the timeout."""
        if self._channel is None:
            return RunningSnapshot(self._local.nodes_of([execution])[execution])
        try:
            snapshot = await self._ask_workers(self._channel, execution, timeout_s)
            if self._processes is None:
                return snapshot
            return replace(snapshot, queues=served_queues(await self._processes.list()))
        except (RuneError, TimeoutError) as error:
            log.info("what runs now in %s is not known: %s", execution, error)
            return RunningSnapshot([], complete=False)

    async def _ask_workers(self, channel: LiveChannel, execution: str, timeout_s: float) -> RunningSnapshot:
        await self._listen(channel)
        answers: asyncio.Queue[LiveReport] = asyncio.Queue()
        self._answers.setdefault(execution, []).append(answers)
        found: dict[str, list[RunningNode]] = {}
        expected = 0
        try:
            expected = await channel.ask([execution])
            async with asyncio.timeout(timeout_s):
                while len(found) < expected:
                    report = await answers.get()
                    found[report.sender] = report.running[execution]
        except TimeoutError:
            pass
        finally:
            self._answers[execution].remove(answers)
            if not self._answers[execution]:
                del self._answers[execution]
        return RunningSnapshot(_merge(found.values()), len(found) >= expected)

    async def run(self) -> None:
        """Keep the followed executions up to date until cancelled."""
        try:
            while True:
                await self._needed.wait()
                try:
                    await self._update()
                except (RuneError, TimeoutError) as error:
                    log.info("what runs now is not known: %s", error)
                await asyncio.sleep(POLL_INTERVAL_S)
        finally:
            await self.close()

    async def close(self) -> None:
        """Stop listening to reports."""
        if self._listener is not None:
            self._listener.cancel()
            await asyncio.gather(self._listener, return_exceptions=True)
            self._listener = None

    async def _update(self) -> None:
        if self._channel is None:
            self._local.followed = self._followed.keys()
            self._take(self._local.report(self._followed))
            return
        await self._listen(self._channel)
        loop = asyncio.get_running_loop()
        asked: set[str] = set()
        ask_at = 0.0
        while self._followed:
            # A newly followed execution is asked for at once, the others in intervals.
            new = self._followed.keys() - asked
            if new or loop.time() >= ask_at:
                due = list(new) if loop.time() < ask_at else list(self._followed)
                await self._channel.ask(due)
                ask_at = ask_at if loop.time() < ask_at else loop.time() + ASK_INTERVAL_S
                asked = set(self._followed)
            self._drop_silent(time.monotonic() - REPORT_TIMEOUT_S)
            await asyncio.sleep(POLL_INTERVAL_S)

    async def _listen(self, channel: LiveChannel) -> None:
        """Subscribe to the reports, once."""
        if self._listener is None or self._listener.done():
            self._listening.clear()
            self._listener = asyncio.create_task(channel.listen(self._take, self._listening))
        async with asyncio.timeout(SUBSCRIBE_TIMEOUT_S):
            await self._listening.wait()

    def _take(self, report: LiveReport) -> None:
        now = time.monotonic()
        for execution, nodes in report.running.items():
            for each in self._answers.get(execution, ()):
                each.put_nowait(report)
            if execution in self._followed:
                self._reports.setdefault(execution, {})[report.sender] = (now, nodes)
                self._show(execution, report.lines.get(execution, ()))

    def _drop_silent(self, since: float) -> None:
        """Drop the reports of processes that no longer report."""
        for execution, senders in self._reports.items():
            silent = [name for name, (at, _) in senders.items() if at < since]
            for name in silent:
                del senders[name]
            if silent:
                self._show(execution, ())

    def _show(self, execution: str, lines: Sequence[LoggedLine]) -> None:
        merged = _merge(nodes for _, nodes in self._reports[execution].values())
        if lines or merged != self._shown.get(execution, []):
            self._shown[execution] = merged
            self._followed[execution](merged, lines)


def active_runs(snapshot: RunningSnapshot, now: int) -> ActiveRuns:
    """Return a snapshot in the form that explains an execution."""
    runs = {
        (each.node, each.path): RunningAttempt(each.worker, each.since, each.attempt, each.progress)
        for each in snapshot.nodes
    }
    return ActiveRuns(runs, now, snapshot.complete, snapshot.queues)


def _merge(reports: Iterable[Sequence[RunningNode]]) -> list[RunningNode]:
    """Return each run once, in the order of the plan. Of two reports about a run, the one with progress is used."""
    found: dict[tuple[int, tuple[int, ...]], RunningNode] = {}
    for nodes in reports:
        for each in nodes:
            known = found.get((each.node, each.path))
            if known is None or (each.attempt, bool(each.progress)) > (known.attempt, bool(known.progress)):
                found[(each.node, each.path)] = each
    return [found[key] for key in sorted(found)]
