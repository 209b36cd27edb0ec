"""Reports what runs in this process while other processes follow it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Collection, Sequence
from typing import Protocol

from rune.errors import RuneError
from rune.ports.processes import (
    LiveChannel,
    LiveReport,
)

log = logging.getLogger("rune.live")

REPORT_INTERVAL_S = 0.25
FOLLOW_TIMEOUT_S = 5.0
"""How long an execution is reported after the last request for it."""

MAX_FOLLOWED = 1_000


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
