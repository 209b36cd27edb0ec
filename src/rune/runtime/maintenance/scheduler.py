"""The scheduler: fires timers, resends tokens that no worker holds, and recovers parents and children after a crash.

It sleeps until the next timer is due instead of polling. The outbox relay and the cleaner run beside it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Sequence

from rune.core.execution.fact import ExecutionLate
from rune.core.execution.token import Token
from rune.ports.clock import Clock
from rune.ports.journal import ExecutionEndedError, Journal, StoreUnavailableError
from rune.ports.queue import Queue
from rune.ports.state import RENEWAL_MS, DueTimer, State
from rune.runtime import failpoint
from rune.runtime.lifecycle.children import Children
from rune.runtime.lifecycle.finisher import Finisher
from rune.runtime.worker.leases import Leases
from rune.telemetry.counters import Instrumentation

log = logging.getLogger("rune.scheduler")

BATCH = 500
MAX_RESENT_AT_ONCE = 50
"""Tokens that are sent again together. While the queue is unavailable, each of them is buffered once per attempt."""

STORE_RETRY_DELAY_MS = 500
SWEEP_PERIOD_MS = 1_000
"""A token whose worker died is sent again at most this long after its lease has expired."""

RECONCILE_PERIOD_MS = 60_000


class Scheduler:
    """Fires due timers and sweeps for unclaimed tokens."""

    def __init__(
        self,
        state: State,
        queue: Queue,
        finisher: Finisher,
        leases: Leases,
        children: Children,
        clock: Clock,
        instrumentation: Instrumentation,
        journal: Journal,
    ) -> None:
        self._journal = journal
        self._state = state
        self._queue = queue
        self._finisher = finisher
        self._children = children
        self._leases = leases
        self._clock = clock
        self._instrumentation = instrumentation
        self._swept_at = 0
        self._renewed_at = 0
        self._reconciled_at = -RECONCILE_PERIOD_MS

    async def run(self) -> None:
        """Fire timers until cancelled."""
        while True:
            try:
                full = await self._turn()
                when = self._clock.now() if full else await self._next_wakeup()
            except StoreUnavailableError as error:
                log.warning("store unavailable: %s", error.message)
                when = self._clock.now() + STORE_RETRY_DELAY_MS
            except Exception:
                # An error in one execution must not stop the timers of all others.
                log.exception("firing timers failed")
                when = self._clock.now() + STORE_RETRY_DELAY_MS
            await self._clock.sleep_until(when)

    async def _turn(self) -> bool:
        """Fire one batch of due timers. Return whether there may be more."""
        timers = await self._state.due_timers(BATCH)
        # The state has removed all of these timers: what follows from one must not be lost because of another.
        await _all([self._serve(timer) for timer in timers])
        if self._clock.now() - self._swept_at >= SWEEP_PERIOD_MS:
            self._swept_at = self._clock.now()
            # Renew first: after a blocked event loop the sweep must not resend tokens that this process holds.
            if not self._leases.in_thread and self._clock.now() - self._renewed_at >= RENEWAL_MS:
                self._renewed_at = self._clock.now()
                await self._leases.renew()
            await self._resend()
        if self._clock.now() - self._reconciled_at >= RECONCILE_PERIOD_MS:
            await self._children.recover(self._clock.now())
            self._reconciled_at = self._clock.now()
        return len(timers) >= BATCH

    async def _resend(self) -> None:
        """Send tokens that no worker holds and whose message is lost. After a failure the next sweep sends the rest."""
        tokens = await self._state.unclaimed_tokens(BATCH)
        for start in range(0, len(tokens), MAX_RESENT_AT_ONCE):
            await _all(
                [
                    self._send_lost(execution, token, priority)
                    for execution, token, priority in tokens[start : start + MAX_RESENT_AT_ONCE]
                ]
            )
        self._instrumentation.counters.tokens_resent += len(tokens)

    async def _send_lost(self, execution: str, token: Token, priority: int) -> None:
        """Send a token. One whose message cannot be made comes up again, and does not keep the others."""
        try:
            await self._queue.send(execution, [token], priority)
        except StoreUnavailableError:
            raise
        except Exception as error:
            log.warning("lost tokens of %s are not sent: %s: %s", execution, type(error).__name__, error)

    async def _serve(self, due: DueTimer) -> None:
        """Send the tokens of a timer, and end the execution if the timer ended it."""
        self._instrumentation.timer_fired(due)
        # crash here: nothing that follows from the timer is recorded, so a rebuilt state arms it again
        failpoint.hit("fired")
        if due.emitted:
            await self._queue.send(due.execution, due.emitted, due.priority)
        if due.finish is not None:
            await self._finisher.finish(due.execution, due.finish, due.now)
        elif due.timer.kind == "late":
            await self._record_late(due)

    async def _record_late(self, due: DueTimer) -> None:
        """Record that an execution is late, which has no consequence but its handler. Safe to repeat: the timer fires
        again until the state knows of the fact."""
        try:
            (fact,) = await self._journal.record(due.execution, [ExecutionLate(due.now)])
        except ExecutionEndedError as ended:
            await self._state.end(due.execution, ended.end)
            return
        # crash here: the timer fires again, and a rebuilt state finds the fact
        failpoint.hit("late")
        applied = await self._state.control(due.execution, fact)
        await self._queue.send(due.execution, applied.emitted, due.priority)

    async def _next_wakeup(self) -> int:
        due = await self._state.next_due()
        sweep = self._swept_at + SWEEP_PERIOD_MS
        return sweep if due is None else min(due, sweep)


async def _all(work: Sequence[Awaitable[None]]) -> None:
    """Wait for all of the work, then raise the first failure."""
    for result in await asyncio.gather(*work, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result
