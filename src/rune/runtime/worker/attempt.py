"""What a worker keeps for an attempt while its node runs: the lease, the log, and where expressions are evaluated.

Held leases are renewed. Logs are stored in the blob store, beside the outputs of their nodes.

An evaluation in the event loop has an allowance of estimated work. Expressions are pure, so that one which needs more
is started again in a thread. The allowance decides only where an evaluation runs, never its result. In the thread the
limit is CPU time of that thread, so that the load of the machine changes no result either.

See docs/adr/0034-long-evaluations-move-to-a-thread-with-a-cpu-limit.md.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from rune.core.execution.token import Path, Token, token_name
from rune.core.expr import Meter, TimeBudgetError
from rune.core.plan.model import Plan
from rune.nodes.attempt_log import AttemptLog, LogLine, decode_log
from rune.nodes.base import Interruption
from rune.ports.journal import BlobStore, StoreUnavailableError
from rune.ports.processes import LoggedLine
from rune.ports.state import Fence, State
from rune.runtime.live import RunningNodes

lease_log = logging.getLogger("rune.leases")

RENEWAL_INTERVAL_S = 2.5
LEASE_S = 3 * RENEWAL_INTERVAL_S
"""How long a worker that hears nothing from the store may rely on its lease. It counts from the moment at which the
worker asked, because the store may have answered at once and the answer may have taken long."""

Key = tuple[str, int, Path]

storing_log = logging.getLogger("rune.attempt_logs")

FLUSH_INTERVAL_S = 1.0
"""How often the log of a running attempt is stored, so that it survives a crash of the worker."""

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


class LeaseLapsedError(Exception):
    """The lease of a token may be over before its node has begun: another worker may run it."""


class _Lease:
    """A held lease and the monotonic time until which the worker may rely on it."""

    __slots__ = ("fence", "until")

    def __init__(self, fence: Fence, until: float) -> None:
        self.fence = fence
        self.until = until


class Leases:
    """Renews held leases. When a renewal fails the lease is lost, and the task that runs its node is cancelled."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._held: dict[Key, _Lease] = {}
        self._running: dict[Key, asyncio.Task[Any]] = {}
        self._lost: set[Key] = set()
        self.in_thread = False
        """Whether a thread renews the leases, so that no loop of the engine has to."""

    def held(self) -> list[tuple[Key, Fence]]:
        """Return the held leases. May be called in any thread."""
        return [(key, lease.fence) for key, lease in self._held.copy().items()]

    def hold(self, execution: str, token: Token, fence: Fence, asked: float) -> None:
        """Renew a lease from now on that the worker asked for at `asked` (monotonic)."""
        self._held[(execution, token.node, token.path)] = _Lease(fence, asked + LEASE_S)

    def renewed(self, key: Key, fence: Fence, asked: float) -> None:
        """Note that the store has extended a lease. May be called in any thread."""
        lease = self._held.get(key)
        if lease is not None and lease.fence == fence:
            lease.until = asked + LEASE_S

    def check(self, execution: str, token: Token) -> None:
        """Raise unless the lease of a token is certainly held now. Called last before its node runs."""
        lease = self._held.get((execution, token.node, token.path))
        if lease is None or time.monotonic() >= lease.until:
            raise LeaseLapsedError("the lease of the token may be over before its node runs")

    def release(self, execution: str, token: Token, fence: Fence) -> None:
        """Stop renewing the lease, unless the token was claimed again under another fence."""
        key = (execution, token.node, token.path)
        lease = self._held.get(key)
        if lease is not None and lease.fence == fence:
            del self._held[key]

    def attach_task(self, execution: str, token: Token) -> Key:
        """Register the current task to be cancelled if the lease of this token is lost."""
        key = (execution, *token.key)
        task = asyncio.current_task()
        assert task is not None
        self._running[key] = task
        return key

    def detach_task(self, key: Key) -> bool:
        """Unregister the task. Return whether it was cancelled because of a lost lease and for no other reason."""
        task = self._running.pop(key, None)
        if key not in self._lost:
            return False
        self._lost.discard(key)
        return task is not None and task.uncancel() == 0

    async def renew(self) -> None:
        held, asked = self.held(), time.monotonic()
        renewed = await asyncio.gather(*(self._state.renew(*key, fence) for key, fence in held))
        for (key, fence), still_held in zip(held, renewed, strict=True):
            if still_held:
                self.renewed(key, fence, asked)
            else:
                self.lose(key, fence)

    def lose(self, key: Key, fence: Fence) -> None:
        """Cancel the task of a lease that could not be renewed, unless it was released or claimed again meanwhile."""
        lease = self._held.get(key)
        if lease is None or lease.fence != fence:
            return
        del self._held[key]
        task = self._running.get(key)
        if task is not None:
            self._lost.add(key)
            task.cancel()

    async def run(self) -> None:
        """Renew until cancelled. Used by a process without a scheduler and without a thread, which otherwise renew."""
        while True:
            await asyncio.sleep(RENEWAL_INTERVAL_S)
            try:
                await self.renew()
            except StoreUnavailableError as error:
                lease_log.warning("store unavailable, leases are not renewed: %s", error.message)
            except Exception:
                lease_log.exception("renewing leases failed")


def log_key(execution: str, plan: Plan, node: int, path: Path, attempt: int) -> str:
    """Return the key under which the log of an attempt is stored."""
    return f"{execution}/{token_name(node, path, plan.ids)}/log/{attempt}"


class AttemptLogs:
    """Opens a log for each run of a node type that may log, and stores those that have lines."""

    def __init__(self, blob: BlobStore, running: RunningNodes) -> None:
        self._blob = blob
        self._running = running
        self._open: dict[str, AttemptLog] = {}
        self._storing: dict[str, asyncio.Lock] = {}
        self.logged: set[tuple[str, int, Path]] = set()
        """Runs that logged and whose fact is not recorded yet."""

    def open(self, execution: str, plan: Plan, token: Token, *, again: bool) -> AttemptLog:
        """Open the log of a run. `again`: an earlier run of the same attempt may have stored one."""

        def on_line(line: LogLine) -> None:
            shown = LoggedLine(token.node, token.path, token.attempt, line.at, line.level, line.message)
            self._running.logged(execution, shown)

        made = AttemptLog(on_line, continues=again)
        self._open[log_key(execution, plan, token.node, token.path, token.attempt)] = made
        return made

    async def close(self, execution: str, plan: Plan, token: Token, written: AttemptLog) -> None:
        """Store the log of a run that has ended."""
        key = log_key(execution, plan, token.node, token.path, token.attempt)
        self._open.pop(key, None)
        if written:
            await self._store(key, written)
            self._storing.pop(key, None)

    def was_logged(self, execution: str, token: Token) -> bool:
        """Return whether the last run of this token logged, once."""
        key = (execution, token.node, token.path)
        if key not in self.logged:
            return False
        self.logged.discard(key)
        return True

    async def run(self) -> None:
        """Store the logs of running attempts until cancelled."""
        while True:
            await asyncio.sleep(FLUSH_INTERVAL_S)
            for key, written in list(self._open.items()):
                if written.unsaved and key in self._open:
                    await self._store(key, written)

    async def _store(self, key: str, written: AttemptLog) -> None:
        # Two writes at the same time could end in the wrong order.
        async with self._storing.setdefault(key, asyncio.Lock()):
            try:
                if written.continues:
                    earlier = await self._blob.get(key)
                    if earlier is not None:
                        written.prepend(decode_log(earlier))
                    written.continues = False
                await self._blob.put(key, written.encoded())
            except Exception as error:
                # Any exception: a log must neither fail its node nor end the worker.
                storing_log.warning("the log of %s is not stored: %s", key, error)


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
