"""Gauges: asks the stores how things stand, once for everybody who wants to know at about the same time."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable

from rune.ports.inspection import ReportsBacklog, ReportsDepth
from rune.runtime.backend import Backend
from rune.telemetry.prometheus import QueueStats, StoreStatsSnapshot

log = logging.getLogger("rune.gauges")

CACHE_S = 1.0  # s
TIMEOUT_S = 5.0  # s for all answers together
ROLES = ("worker", "scheduler")
"""Who must be there: that there is none is a number too."""

MAX_DEAD_LETTERS = 1_000
"""As many dead letters as are counted: who has more knows enough."""


class StoreStats:
    """Readings of one process. A store that does not answer leaves its part out."""

    def __init__(self, backend: Backend, busy: Callable[[], int], slots: int, roles: frozenset[str]) -> None:
        self._backend = backend
        self._busy = busy
        self._slots = slots if "worker" in roles else 0
        self._roles = roles
        self._reading: asyncio.Lock = asyncio.Lock()
        self._last = StoreStatsSnapshot()
        self._read_at = -CACHE_S
        self._troubles = 0

    async def read(self) -> StoreStatsSnapshot:
        """How things stand, not older than a second."""
        async with self._reading:
            if time.monotonic() - self._read_at >= CACHE_S:
                await asyncio.gather(
                    self._query(self._queues),
                    self._query(self._members),
                    self._query(self._dead_letters),
                    self._query(self._outbox),
                    self._query(self._timers),
                )
                self._read_at = time.monotonic()
        last, state = self._last, self._backend.state
        last.rebuilds = getattr(
            state, "rebuilds", 0
        )  # it may stand behind others who pass on what they do not know
        last.busy, last.slots, last.errors = self._busy(), self._slots, self._troubles
        return last

    async def _query(self, ask: Callable[[], Awaitable[None]]) -> None:
        try:
            async with asyncio.timeout(TIMEOUT_S):
                await ask()
        except Exception as error:  # whatever it was, the other samples are still true
            self._troubles += 1
            log.info("a store does not say how it is: %s: %s", type(error).__name__, error)

    async def _queues(self) -> None:
        self._last.queues = ()
        if isinstance(self._backend.queue, ReportsDepth):
            found = await self._backend.queue.depths()
            self._last.queues = tuple(
                QueueStats(each.queue, each.waiting, each.held, each.age) for each in found
            )

    async def _members(self) -> None:
        self._last.members = {}
        rows: list[Iterable[str]] = [self._roles]
        if self._backend.fleet is not None:
            rows = [each.roles for each in await self._backend.fleet.list() if not each.draining]
        found = Counter(role for roles in rows for role in roles)
        self._last.members = {role: found[role] for role in sorted({*ROLES, *found})}

    async def _dead_letters(self) -> None:
        self._last.dead_letters = None
        self._last.dead_letters = len(await self._backend.journal.dead_letters(MAX_DEAD_LETTERS))

    async def _outbox(self) -> None:
        self._last.outbox_rows = self._last.outbox_lag = None
        outbox: object = self._backend.outbox
        if isinstance(outbox, ReportsBacklog):
            found = await outbox.backlog()
            self._last.outbox_rows, self._last.outbox_lag = found.rows, found.lag

    async def _timers(self) -> None:
        self._last.timer_lag = None
        due = await self._backend.state.next_due()
        late = 0 if due is None else max(0, self._backend.clock.now() - due)
        self._last.timer_lag = late / 1000
