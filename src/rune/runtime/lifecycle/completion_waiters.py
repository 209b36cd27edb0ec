"""Callers that wait for the end of an execution.

Ends that other processes record are notified by them. The journal is queried only for what a notification does not
contain, and rarely in case one was lost.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Set

from rune.core.execution.fact import ExecutionEnded
from rune.ports.journal import (
    Journal,
    StoreUnavailableError,
)
from rune.runtime.backend import Notifier
from rune.runtime.execution_data import ExecutionDataCache

log = logging.getLogger("rune.finisher")

POLL_INTERVAL_S = 1.0  # a notification may be lost without the connection being lost


class CompletionWaiters:
    """Futures of callers in this process that wait for the end of an execution."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[asyncio.Future[ExecutionEnded]]] = {}

    def wait_for(self, execution: str) -> asyncio.Future[ExecutionEnded]:
        future: asyncio.Future[ExecutionEnded] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(execution, []).append(future)
        return future

    def forget(self, execution: str, future: asyncio.Future[ExecutionEnded]) -> None:
        """Drop the future of a caller that no longer waits."""
        waiting = self._waiting.get(execution)
        if waiting is not None and future in waiting:
            waiting.remove(future)
            if not waiting:
                del self._waiting[execution]

    @property
    def executions(self) -> Set[str]:
        """The executions with at least one waiting caller."""
        return self._waiting.keys()

    def notify(self, execution: str, end: ExecutionEnded) -> None:
        """Resolve all futures of an execution."""
        for future in self._waiting.pop(execution, ()):
            if not future.done():
                future.set_result(end)


class CompletionListener:
    """Notifies callers in this process of ends that other processes recorded, and drops what is cached of them."""

    def __init__(
        self,
        journal: Journal,
        waiters: CompletionWaiters,
        notifier: Notifier,
        data_cache: ExecutionDataCache,
    ) -> None:
        self._journal = journal
        self._waiters = waiters
        self._notifier = notifier
        self._data_cache = data_cache

    async def run(self) -> None:
        """Pass notifications on until cancelled. Query the ends of all awaited executions after notifications may have
        been missed, and once in POLL_INTERVAL_S."""
        next_poll = time.monotonic() + POLL_INTERVAL_S
        while True:
            executions = await self._next_ends(next_poll)
            if time.monotonic() >= next_poll:
                next_poll = time.monotonic() + POLL_INTERVAL_S
                executions = self._waiters.executions
            # While a query is in progress further notifications arrive, which the next query takes together.
            try:
                await self._query(self._waiters.executions & executions)
            except StoreUnavailableError as error:
                log.info("store unavailable, waiting callers are notified later: %s", error.message)

    async def _next_ends(self, deadline: float) -> Set[str]:
        """Wait for notifications, pass on those with a terminal row, and return the executions to query."""
        try:
            async with asyncio.timeout(max(0.0, deadline - time.monotonic())):
                ended = await self._notifier.ended()
        except TimeoutError:
            return frozenset()
        if ended is None:
            return self._waiters.executions
        unknown: set[str] = set()
        for execution, end in ended.items():
            self._data_cache.forget_ended(execution)
            if end is None:
                unknown.add(execution)
            else:
                self._waiters.notify(execution, end)
        return unknown

    async def _query(self, executions: Set[str]) -> None:
        if executions:
            for execution, end in (await self._journal.ends_of(list(executions))).items():
                self._waiters.notify(execution, end)
