"""Reads queue depths, backlog, timers and process counts from the stores, at most once a second."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable

from rune.ports.inspection import CountsDeadLetters, ReportsBacklog, ReportsDepth
from rune.ports.queries import ExecutionFilter
from rune.runtime.backend import Backend
from rune.runtime.queries.reader import ExecutionReader
from rune.telemetry.counters import QueueStats, StoreStatsSnapshot

log = logging.getLogger("rune.store_stats")

CACHE_S = 1.0
TIMEOUT_S = 5.0
ROLES = ("worker", "scheduler")
"""Roles that are always reported, also when no process has them."""

STUCK_CACHE_S = 60.0
STUCK_PAGE_SIZE = 200
STUCK_PASS_S = 1.0
"""How long one query counts executions without progress; the next one continues."""

MAX_DEAD_LETTERS = 1_000
"""Counting stops here: a larger number would not change what an operator does."""


class StoreStats:
    """Reads the statistics for one process. Those of a store that does not answer are left out."""

    def __init__(
        self,
        backend: Backend,
        busy: Callable[[], int],
        slots: int,
        roles: frozenset[str],
        reader: ExecutionReader | None = None,
    ) -> None:
        """With a `reader`, executions without progress are counted too."""
        self._backend = backend
        self._busy = busy
        self._slots = slots if "worker" in roles else 0
        self._roles = roles
        self._lock: asyncio.Lock = asyncio.Lock()
        self._last = StoreStatsSnapshot()
        self._read_at = -CACHE_S
        self._errors = 0
        self._reader = reader
        self._stuck_at = -STUCK_CACHE_S
        self._stuck_after: str | None = None
        self._stuck_found = 0

    async def read(self) -> StoreStatsSnapshot:
        """Return statistics that are at most CACHE_S old."""
        async with self._lock:
            if time.monotonic() - self._read_at >= CACHE_S:
                await asyncio.gather(
                    self._query(self._queues),
                    self._query(self._processes),
                    self._query(self._dead_letters),
                    self._query(self._outbox),
                    self._query(self._timers),
                    self._query(self._stuck),
                )
                self._read_at = time.monotonic()
        last, state = self._last, self._backend.state
        # `rebuilds` is not part of the State port; the wrappers around a state pass it through.
        last.rebuilds = getattr(state, "rebuilds", 0)
        last.busy, last.slots, last.errors = self._busy(), self._slots, self._errors
        return last

    async def _query(self, read: Callable[[], Awaitable[None]]) -> None:
        try:
            async with asyncio.timeout(TIMEOUT_S):
                await read()
        except Exception as error:  # the statistics of the other stores are still valid
            self._errors += 1
            log.info("reading store statistics failed: %s: %s", type(error).__name__, error)

    async def _queues(self) -> None:
        self._last.queues = ()
        if isinstance(self._backend.queue, ReportsDepth):
            depths = await self._backend.queue.depths()
            self._last.queues = tuple(
                QueueStats(each.queue, each.waiting, each.held, each.age) for each in depths
            )

    async def _processes(self) -> None:
        self._last.members = {}
        processes: list[Iterable[str]] = [self._roles]
        if self._backend.processes is not None:
            processes = [each.roles for each in await self._backend.processes.list() if not each.draining]
        counts = Counter(role for roles in processes for role in roles)
        self._last.members = {role: counts[role] for role in sorted({*ROLES, *counts})}

    async def _dead_letters(self) -> None:
        self._last.dead_letters = self._last.dead_messages = None
        self._last.dead_letters = len(await self._backend.journal.dead_letters(MAX_DEAD_LETTERS))
        if isinstance(self._backend.queue, CountsDeadLetters):
            self._last.dead_messages = await self._backend.queue.dead_letters()

    async def _outbox(self) -> None:
        self._last.outbox_rows = self._last.outbox_lag = None
        outbox: object = self._backend.outbox
        if isinstance(outbox, ReportsBacklog):
            backlog = await outbox.backlog()
            self._last.outbox_rows, self._last.outbox_lag = backlog.rows, backlog.lag

    async def _stuck(self) -> None:
        """Count executions without progress, rarely and bit by bit: each candidate may have to be folded."""
        began = time.monotonic()
        if self._reader is None or began - self._stuck_at < STUCK_CACHE_S:
            return
        while True:
            page = await self._reader.search(
                ExecutionFilter(stuck=True), after=self._stuck_after, limit=STUCK_PAGE_SIZE
            )
            self._stuck_found += len(page.executions)
            self._stuck_after = page.next
            if page.next is None:
                self._last.stuck, self._stuck_found = self._stuck_found, 0
                self._stuck_at = time.monotonic()
            if page.next is None or time.monotonic() - began >= STUCK_PASS_S:
                return

    async def _timers(self) -> None:
        self._last.timer_lag = None
        due = await self._backend.state.next_due()
        late = 0 if due is None else max(0, self._backend.clock.now() - due)
        self._last.timer_lag = late / 1000
