"""The scheduler: sleeps until the next timer is due, then moves it on. There is no tick."""

from __future__ import annotations

import logging

from rune.ports.clock import Clock
from rune.ports.journal import StoreUnavailableError
from rune.ports.queue import Queue
from rune.ports.state import State
from rune.runtime import failpoint
from rune.runtime.instrumentation import Instrumentation
from rune.runtime.lifecycle.children import Children
from rune.runtime.lifecycle.finisher import Finisher
from rune.runtime.worker.leases import Leases

log = logging.getLogger("rune.scheduler")

BATCH = 500
STORE_RETRY_DELAY_MS = 500
SWEEP_PERIOD_MS = 3_000
RECONCILE_PERIOD_MS = 60_000


class Scheduler:
    """Fires timers, wakes executions that slept, and sends again what nobody holds."""

    def __init__(
        self,
        state: State,
        queue: Queue,
        endings: Finisher,
        leases: Leases,
        children: Children,
        clock: Clock,
        witness: Instrumentation,
    ) -> None:
        self._state = state
        self._queue = queue
        self._endings = endings
        self._children = children
        self._leases = leases
        self._clock = clock
        self._witness = witness
        self._swept = 0
        self._reconciled = -RECONCILE_PERIOD_MS

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            try:
                busy = await self._turn()
                when = self._clock.now() if busy else await self._next()
            except StoreUnavailableError as away:
                log.warning("the store is away: %s", away.message)
                when = self._clock.now() + STORE_RETRY_DELAY_MS
            except Exception:
                log.exception(
                    "the scheduler stumbled"
                )  # one execution's trouble must not stop everybody's timers
                when = self._clock.now() + STORE_RETRY_DELAY_MS
            await self._clock.sleep_until(when)

    async def _turn(self) -> bool:
        """One batch of due timers; whether there may be more."""
        fired = await self._state.due_timers(BATCH)
        for each in fired:
            self._witness.timer_fired(each)
            failpoint.hit(
                "fired"
            )  # crash here: the timer's consequence is not journaled, so a fold arms it again
            if each.emitted:
                await self._queue.send(each.execution, each.emitted, each.priority)
            if each.finish is not None:
                await self._endings.finish(each.execution, each.finish, each.now)
        if self._clock.now() - self._swept >= SWEEP_PERIOD_MS:
            self._swept = self._clock.now()
            await self._leases.renew()  # first: a loop that was blocked must not take its own work for lost
            for execution, token, priority in await self._state.unclaimed_tokens(BATCH):
                await self._queue.send(execution, [token], priority)
        if self._clock.now() - self._reconciled >= RECONCILE_PERIOD_MS:
            self._reconciled = self._clock.now()
            await self._children.recover(self._clock.now())
        return len(fired) >= BATCH

    async def _next(self) -> int:
        due = await self._state.next_due()
        sweep = self._swept + SWEEP_PERIOD_MS
        return sweep if due is None else min(due, sweep)
