"""Finds executions that make no progress although nothing they wait for is still to come."""

from __future__ import annotations

import asyncio
import time
from typing import Protocol

from msgspec.structs import replace

from rune.core.execution.explain import explain
from rune.core.execution.state import State
from rune.core.plan.model import Plan
from rune.errors import RuneError
from rune.ports.queries import ExecutionCount, ExecutionFilter, Executions, ExecutionsFound, Summary

STUCK_AFTER_MS = 15 * 60_000
"""An execution without a new row for this long is stuck, unless it waits for a time or a signal."""

BATCH_SIZE = 200
MAX_COUNTED = 1_000
"""Running executions that are checked in order to count the stuck ones. Each may have to be folded."""


class Progress(Protocol):
    """Reads how far an execution is."""

    async def last_progress(self, execution: str) -> int | None:
        """Return the time of the newest row of an execution (epoch ms); None if it has none."""

    async def state(self, execution: str, now: int) -> tuple[Plan, State]:
        """Return the state of an execution."""


class StuckExecutions:
    """Selects the executions without progress among the running ones."""

    def __init__(self, index: Executions, progress: Progress) -> None:
        self._index = index
        self._progress = progress

    async def search(self, wanted: ExecutionFilter, *, after: str | None, limit: int) -> ExecutionsFound:
        """Return a page of executions without progress, newest first, out of up to BATCH_SIZE running ones."""
        if wanted.statuses and "running" not in wanted.statuses:
            return ExecutionsFound([], None)
        now = time.time_ns() // 1_000_000
        latest = now - STUCK_AFTER_MS + 1
        until = latest if wanted.until is None else min(wanted.until, latest)
        running = replace(wanted, statuses=("running",), stuck=False, until=until)
        page = await self._index.search(running, after=after, limit=BATCH_SIZE)
        found: list[Summary] = []
        for each in page.executions:
            if await self.is_stuck(each, now):
                found.append(each)
                if len(found) == limit:
                    return ExecutionsFound(found, each.id)
            await asyncio.sleep(0)  # reads of an embedded file do not suspend
        return ExecutionsFound(found, page.next)

    async def all(self, wanted: ExecutionFilter, *, after: str | None, limit: int) -> list[Summary]:
        """Return up to `limit` executions without progress."""
        found: list[Summary] = []
        while True:
            page = await self.search(wanted, after=after, limit=limit - len(found))
            found += page.executions
            after = page.next
            if after is None or len(found) >= limit:
                return found

    async def count(self, wanted: ExecutionFilter) -> ExecutionCount:
        """Count the executions without progress among the newest running ones."""
        count, after = 0, None
        for _ in range(MAX_COUNTED // BATCH_SIZE):
            page = await self.search(wanted, after=after, limit=BATCH_SIZE)
            count += len(page.executions)
            after = page.next
            if after is None:
                return ExecutionCount(count, exact=True)
        return ExecutionCount(count, exact=False)

    async def is_stuck(self, execution: Summary, now: int) -> bool:
        """Return whether a running execution has no new row, no timer that is still to fire, and waits for no signal. A
        node that runs for longer than STUCK_AFTER_MS has no row either, and counts."""
        oldest = now - STUCK_AFTER_MS
        if execution.status != "running" or execution.started_at > oldest:
            return False
        progress = await self._progress.last_progress(execution.id)
        if progress is not None and progress > oldest:
            return False
        try:
            plan, state = await self._progress.state(execution.id, now)
        except RuneError:
            return True  # no process can continue it either
        if any(state.waiting_for_signal.values()):
            return False
        return all(each.due is None or each.due <= oldest for each in explain(plan, state))
