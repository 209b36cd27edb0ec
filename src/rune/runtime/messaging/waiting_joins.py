"""Joins that an edge has reached and that stay closed: what they wait for, and when it is reported.

An execution with an arrival is looked at after a moment, because most joins open at once, and then at most once a
second as long as more arrives. So the newest figures are reported at most a second late, and never dropped: an arrival
within the second is reported at its end, and one that finds another process reporting is looked at again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import msgspec

from rune.core.execution.state import State
from rune.core.execution.token import Path
from rune.core.plan.model import NodePlan, Plan
from rune.runtime.execution_data import ExecutionData

log = logging.getLogger("rune.status")

FIRST_LOOK_S = 0.1
PERIOD_S = 1.0
MAX_REPORTED = 10_000
"""Executions whose joins are looked at by this process. Arrivals at joins of more are not reported by it."""

MAX_LOOKS = 8
"""Executions whose state this process reads for it at the same time."""


class WaitingJoin(msgspec.Struct, frozen=True):
    """A join that waits, since when, and how far it is."""

    node: int
    path: Path
    since: int
    details: dict[str, Any]


def waiting_joins(plan: Plan, state: State) -> Iterator[WaitingJoin]:
    """Yield the joins that wait."""
    for path, scope in sorted(state.scopes.items()):
        for index, barrier in sorted(scope.barriers.items()):
            if barrier.arrivals and not barrier.opened:
                alive = sum(arrival.alive for arrival in barrier.arrivals.values())
                details = _counts(plan.nodes[index], len(barrier.arrivals), alive)
                yield WaitingJoin(index, path, barrier.first, details)
        for split, fan in sorted(scope.fans.items()):
            aggregator = plan.nodes[split].aggregator
            if aggregator >= 0 and aggregator not in scope.done and aggregator not in scope.live:
                processed = fan.resolved // len(plan.nodes[aggregator].in_edges)
                since = fan.first if fan.resolved else scope.opened_at
                yield WaitingJoin(aggregator, path, since, {"processed": processed, "total": fan.count})


def _counts(node: NodePlan, arrived: int, alive: int) -> dict[str, Any]:
    if node.opens != "all":  # it opens with so many live arrivals
        return {"arrived": alive, "expected": 1 if node.opens == "any" else node.opens}
    return {"arrived": arrived, "expected": len(node.in_edges)}


class JoinReporter:
    """Calls `report` for executions in which an edge has reached a join. `report` returns False if it has to be called
    again after a period, because another process reports in this one."""

    def __init__(self, report: Callable[[ExecutionData], Awaitable[bool]]) -> None:
        self._report = report
        self._changed: dict[str, ExecutionData] = {}
        self._reports: dict[str, asyncio.Task[None]] = {}
        self._looks = asyncio.Semaphore(MAX_LOOKS)

    def arrived(self, data: ExecutionData) -> None:
        """Note that an edge has reached a join, which stays closed."""
        execution = data.accepted.id
        if execution in self._reports:
            self._changed[execution] = data
        elif len(self._reports) < MAX_REPORTED:
            self._changed[execution] = data
            self._reports[execution] = asyncio.create_task(self._report_changes(execution))

    def forget(self, execution: str) -> None:
        """Stop reporting on an execution, which has ended."""
        self._changed.pop(execution, None)

    async def _report_changes(self, execution: str) -> None:
        try:
            await asyncio.sleep(FIRST_LOOK_S)
            while (data := self._changed.pop(execution, None)) is not None:
                if not await self._look(data):
                    self._changed.setdefault(execution, data)
                await asyncio.sleep(PERIOD_S)
        finally:
            self._changed.pop(execution, None)
            del self._reports[execution]

    async def _look(self, data: ExecutionData) -> bool:
        try:
            async with self._looks:
                return await self._report(data)
        except Exception as error:
            log.info("the waiting joins of %s are not known: %s", data.accepted.id, error)
            return True

    async def close(self) -> None:
        reports = list(self._reports.values())
        for report in reports:
            report.cancel()
        await asyncio.gather(*reports, return_exceptions=True)
