"""Where expressions are evaluated.

An evaluation in the event loop has an allowance of estimated work. Expressions are pure, so that one which needs more
is started again in a thread. The allowance decides only where an evaluation runs, never its result. In the thread the
limit is CPU time of that thread, so that the load of the machine changes no result either.

See docs/adr/0034-long-evaluations-move-to-a-thread-with-a-cpu-limit.md.
"""

from __future__ import annotations

import asyncio
import contextvars
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from rune.core.expr import Meter, TimeBudgetError
from rune.nodes.base import Interruption

LIMIT_MS = 5_000
INLINE_NS = 10_000_000
MIN_INLINE_NS = 500_000
"""What an evaluation may use even if others have used up the allowance of this turn of the event loop."""

THREADS = 2
SLICE_NS = 2_000_000
YIELD_S = 0.0001
"""How long an evaluation in a thread pauses after each slice. Other threads would otherwise wait for the interpreter
for its whole switch interval, several times per request."""

Result = TypeVar("Result")


class NeedsThread(Interruption):
    """The evaluation has used up its allowance in the event loop. Not an Exception, so that no node can catch it."""


class EvaluationStopped(Interruption):
    """The caller of the evaluation was cancelled."""


def _leave(cost: int) -> int:
    raise NeedsThread


class Evaluator:
    """Hands out the meters of evaluations, and the threads for long ones."""

    def __init__(self, limit_ms: int = LIMIT_MS) -> None:
        self._limit_ms = limit_ms
        self._threads: ThreadPoolExecutor | None = None
        self._used = 0
        self.moved = 0
        """Evaluations that were moved to a thread."""

    def inline(self) -> Meter:
        """Return the meter of an evaluation in the event loop."""
        return Meter(INLINE_NS - self._used, _leave)

    def settle(self, meter: Meter, given: int) -> None:
        """Deduct the work of an evaluation from the allowance of the other tasks in this turn of the event loop."""
        used = given - max(0, meter.left)
        if used > MIN_INLINE_NS:
            if not self._used:
                asyncio.get_running_loop().call_soon(self._next_turn)
            self._used = min(self._used + used, INLINE_NS - MIN_INLINE_NS)

    def _next_turn(self) -> None:
        self._used = 0

    async def in_thread(self, work: Callable[[Meter], Result]) -> Result:
        """Do the work in a thread, with the limit on its CPU time."""
        self.moved += 1
        if self._threads is None:
            self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="rune-evaluation")
        limit = _ThreadLimit(self._limit_ms)
        context = contextvars.copy_context()

        def limited() -> Result:
            return work(limit.begin())

        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, context.run, limited)
        except asyncio.CancelledError:
            limit.stopped = True
            raise

    def close(self) -> None:
        """Start no further evaluation in a thread. Those that run end within their limit."""
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)


class _ThreadLimit:
    """Refills the meter of an evaluation in a thread until the CPU time of the thread reaches the limit."""

    def __init__(self, limit_ms: int) -> None:
        self._limit_ms = limit_ms
        self._end = self._paused = 0
        self.stopped = False

    def begin(self) -> Meter:
        """Return the meter; called by the thread."""
        self._end = time.thread_time_ns() + self._limit_ms * 1_000_000
        return Meter(SLICE_NS, self._refill)

    def _refill(self, cost: int) -> int:
        if self.stopped:
            raise EvaluationStopped
        # What comes next cannot be stopped, so it must not begin if it may end after the limit. An estimate of less
        # than a slice is not worth ending early.
        now = time.thread_time_ns()
        if now + (cost if cost > SLICE_NS else 0) > self._end:
            raise TimeBudgetError(f"the expression takes too long (limit: {self._limit_ms:,} ms of CPU time)")
        if now - self._paused > SLICE_NS:
            self._paused = now
            time.sleep(YIELD_S)
        return SLICE_NS
