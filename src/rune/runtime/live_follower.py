"""Follows what runs now, in this process or in all workers."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Sequence

from msgspec.structs import replace

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
from rune.runtime.live import RunningNodes

log = logging.getLogger("rune.live")

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


def _merge(reports: Iterable[Sequence[RunningNode]]) -> list[RunningNode]:
    """Return each run once, in the order of the plan. Of two reports about a run, the one with progress is used."""
    found: dict[tuple[int, tuple[int, ...]], RunningNode] = {}
    for nodes in reports:
        for each in nodes:
            known = found.get((each.node, each.path))
            if known is None or (each.attempt, bool(each.progress)) > (known.attempt, bool(known.progress)):
                found[(each.node, each.path)] = each
    return [found[key] for key in sorted(found)]
