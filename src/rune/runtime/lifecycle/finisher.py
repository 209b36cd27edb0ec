"""Ends executions, and delivers signals to them, among these the ends of their children.

The terminal row is recorded once, then the state is released and parents and waiting callers are notified. Ends that
other processes record are notified by them. The journal is queried only for what a notification does not contain, and
rarely in case one was lost. A signal is recorded in the journal first and then delivered to the node that waits for it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Set

from rune.codec.facts import encode_value
from rune.core.definition.model import Settings
from rune.core.execution.decision import FinishExecution
from rune.core.execution.fact import CHILD_SIGNAL, ExecutionEnded, ExecutionStarted, Fact, SignalReceived
from rune.core.execution.fold import fold
from rune.core.execution.outcome import Error
from rune.errors import LimitExceededError, RuneError
from rune.nodes.base import check_json
from rune.nodes.blobs import adopt
from rune.ports.journal import (
    BlobStore,
    ExecutionEndedError,
    ExecutionRecord,
    Journal,
    Kind,
    Outbox,
    Parent,
    StoreUnavailableError,
)
from rune.ports.queue import Queue
from rune.ports.state import State
from rune.runtime import failpoint
from rune.runtime.backend import Notifier
from rune.runtime.messaging.completion_publisher import CompletionPublisher
from rune.runtime.plan_cache import MissingNodeTypeError
from rune.runtime.queries.history import error_document, read_history, replay
from rune.runtime.values import ExecutionData, ExecutionDataCache, store_value
from rune.telemetry.counters import Instrumentation

log = logging.getLogger("rune.finisher")

POLL_INTERVAL_S = 1.0  # a notification may be lost without the connection being lost

FIRST_RETRY_S = 1.0
LAST_RETRY_S = 32.0
"""A notification that failed is retried after FIRST_RETRY_S and then twice as long each time. After LAST_RETRY_S it is
left to `Children.recover`, which also covers a process that crashed meanwhile."""

MAX_RETRIED = 1_000

ABANDONED = FinishExecution(
    "cancelled", Error("PARENT_ENDED", "the parent execution no longer waits for this one")
)

signal_log = logging.getLogger("rune.children")

SIGNAL = CHILD_SIGNAL


class Finisher:
    """Ends each execution exactly once, however many processes try."""

    def __init__(
        self,
        journal: Journal,
        state: State,
        data_cache: ExecutionDataCache,
        waiters: CompletionWaiters,
        outbox_marker: OutboxMarker,
        instrumentation: Instrumentation,
        parent_reporter: ParentReporter,
        publisher: CompletionPublisher | None = None,
    ) -> None:
        """With a `publisher`, a completion message is published for each end."""
        self._journal = journal
        self._state = state
        self._data_cache = data_cache
        self._waiters = waiters
        self._outbox_marker = outbox_marker
        self._instrumentation = instrumentation
        self._parent_reporter = parent_reporter
        self._publisher = publisher
        self._unnotified: dict[str, ExecutionEnded] = {}
        self._retrying: asyncio.Task[None] | None = None

    async def close(self) -> None:
        """Stop retrying notifications."""
        if self._retrying is not None:
            self._retrying.cancel()
            await asyncio.gather(self._retrying, return_exceptions=True)

    async def finish(
        self, execution: str, finish: FinishExecution, now: int, *, counted: bool = True
    ) -> ExecutionEnded:
        """Record the terminal row and release the execution. Return the row that is stored, which another process may
        have recorded first. An end that the state did not reach itself is not `counted`: its failed items are counted
        from the journal."""
        # crash here: the finish timer fires, armed by the commit that brought the count of live tokens to zero
        failpoint.hit("ending")
        stored: Fact | None = await self._journal.end(execution)
        failed_items = finish.failed_items
        if stored is None and not counted:
            failed_items = await self._count_failed_items(execution, now)
        end = ExecutionEnded(now, finish.status, finish.error, failed_items)
        if stored is None:
            try:
                hooked = await self._is_hooked(execution, end)
                (stored,) = await self._journal.record(execution, [end], hooked=hooked)
            except ExecutionEndedError as ended:
                stored = ended.end
        failpoint.hit("ended")
        assert isinstance(stored, ExecutionEnded)
        if stored is end:
            await self._count_end(execution, end)
        if self._publisher is None:
            await self.release(execution, stored)
            self._outbox_marker.mark_done(execution, "end")
        else:
            await self._release_and_publish(self._publisher, execution, stored)
        return stored

    async def _is_hooked(self, execution: str, end: ExecutionEnded) -> bool:
        if hook_status(end) == "completed":
            return False
        try:
            data = await self._data_cache.get(execution)
        except RuneError:
            return False
        return is_hooked(data.plan.definition.settings, end)

    async def _count_failed_items(self, execution: str, now: int) -> int:
        try:
            data = await self._data_cache.get(execution)
        except RuneError:
            return 0  # without its plan no item of it has run
        if not any(each.fans_out for each in data.plan.nodes):
            return 0
        facts = [each.fact for each in await self._journal.facts(execution)]
        started = ExecutionStarted(data.accepted.at)
        state, _ = await replay(len(facts), lambda: fold(data.plan, [started, *facts], now))
        return state.failed_items

    async def _count_end(self, execution: str, end: ExecutionEnded) -> None:
        try:
            accepted = (await self._data_cache.get(execution)).accepted
        except RuneError:
            accepted = None  # counted without a duration
        self._instrumentation.ended(accepted, end)

    async def _release_and_publish(
        self, publisher: CompletionPublisher, execution: str, end: ExecutionEnded
    ) -> None:
        """Release the execution and publish its completion. If its data cannot be loaded, the relay publishes it."""
        data: ExecutionData | None = None
        try:
            data = await self._data_cache.get(execution)
        except RuneError as error:
            log.warning("the completion of %s is left to the relay: %s", execution, error.message)
        if data is not None:
            data.ending = True
        await self._release(execution, end)
        if data is None:
            self._data_cache.forget(execution)
        else:
            self._data_cache.close(execution)
            # The completion is built from the cached values; the publisher drops them afterwards.
            publisher.publish_end(data, end)

    async def release(self, execution: str, end: ExecutionEnded) -> None:
        """Do everything that follows from a terminal row. Safe to repeat."""
        self._data_cache.keep_ending(execution)
        await self._release(execution, end)
        self._data_cache.forget(execution)

    async def _release(self, execution: str, end: ExecutionEnded) -> None:
        await self._state.end(execution, end)
        await self._try_notify_relatives(execution, end)
        self._waiters.notify(execution, end)

    async def notify_relatives(self, data: ExecutionData, end: ExecutionEnded) -> None:
        """Cancel the children of an ended execution and report its end to its parent."""
        if data.plan.launches:
            for child in await self._journal.children(data.accepted.id):
                await self.cancel_child(child, end.at)
        if data.accepted.parent is not None:
            await self._parent_reporter.report(data, data.accepted.parent, end)

    async def cancel_child(self, child: str, now: int) -> None:
        """Cancel an execution that its parent no longer waits for, unless it has ended."""
        accepted = await self._journal.accepted(child)
        if accepted is not None and accepted.parent is not None and await self._journal.end(child) is None:
            await self.finish(child, ABANDONED, now, counted=False)

    async def _try_notify_relatives(self, execution: str, end: ExecutionEnded) -> None:
        try:
            await self.notify_relatives(await self._data_cache.get(execution), end)
        except Exception as error:
            # The end is recorded, and so is that the parent is not notified yet.
            unexpected = not isinstance(error, StoreUnavailableError | MissingNodeTypeError)
            text = "parent or children of %s are not notified of its end yet: %s"
            log.warning(text, execution, error, exc_info=unexpected)
            self._retry_later(execution, end)

    def _retry_later(self, execution: str, end: ExecutionEnded) -> None:
        if len(self._unnotified) < MAX_RETRIED:
            self._unnotified[execution] = end
        if self._retrying is None or self._retrying.done():
            self._retrying = asyncio.create_task(self._retry_notifications())

    async def _retry_notifications(self) -> None:
        delay = FIRST_RETRY_S
        while self._unnotified and delay <= LAST_RETRY_S:
            await asyncio.sleep(delay)
            delay *= 2
            for execution, end in list(self._unnotified.items()):
                try:
                    await self.notify_relatives(await self._data_cache.get(execution), end)
                except StoreUnavailableError:
                    break
                except Exception as error:
                    log.info("parent or children of %s are still not notified: %s", execution, error)
                    continue
                del self._unnotified[execution]
                self._data_cache.forget(execution)
        self._unnotified.clear()


def hook_status(end: ExecutionEnded) -> str:
    """Return the status of an end as handlers name it."""
    return "failed_items" if end.status == "completed" and end.failed_items else end.status


def is_hooked(settings: Settings, end: ExecutionEnded) -> bool:
    """Return whether executions of a definition with these settings may have a handler for this end: its own one or,
    if it names none, the default. Whoever records an end passes it to the journal, which writes the rows of failures by
    itself."""
    handler, status = settings.on_failure, hook_status(end)
    return status != "completed" and (handler is None or handler.handles(status))


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


class OutboxMarker:
    """Marks outbox rows as done in the background, after this process has done their work itself.

    Does nothing on a backend without an outbox.
    """

    def __init__(self, outbox: Outbox | None) -> None:
        self._outbox = outbox
        self._tasks: set[asyncio.Task[None]] = set()

    def mark_done(self, execution: str, kind: Kind) -> None:
        """Mark a row as done without waiting. If that fails, the relay does the work once more, which is harmless."""
        if self._outbox is not None:
            task = asyncio.create_task(self._mark(self._outbox, execution, kind))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _mark(self, outbox: Outbox, execution: str, kind: Kind) -> None:
        try:
            await outbox.mark_done(execution, kind)
        except StoreUnavailableError:
            return  # the row stays, and the relay takes it

    async def close(self) -> None:
        """Wait for all pending marks."""
        await asyncio.gather(*self._tasks, return_exceptions=True)


class SignalDelivery:
    """Delivers signals to executions."""

    def __init__(self, journal: Journal, state: State, queue: Queue, data_cache: ExecutionDataCache) -> None:
        self._journal = journal
        self._state = state
        self._queue = queue
        self._data_cache = data_cache

    async def deliver(self, execution: str, signal: SignalReceived) -> tuple[SignalReceived, bool]:
        """Record a signal, apply it to the state and send the tokens it resumes. Return the signal as stored under its
        id, and whether it resumed a node. Raise ExecutionEndedError if the execution has ended."""
        stored: Fact
        (stored,) = await self._journal.record(execution, [signal])
        # crash here: the row is stored together with a mark that the state has to be updated
        failpoint.hit("signalled")
        assert isinstance(stored, SignalReceived)
        # Before the state changes: a repeated delivery emits no tokens, so nothing may fail between change and send.
        data = await self._data_cache.get(execution)
        applied = await self._state.signal(execution, stored)
        # crash here: the resumed tokens are in the state, and a rebuilt state has them too; the scheduler sends them
        failpoint.hit("signal_applied")
        await self._queue.send(execution, applied.emitted, data.accepted.priority)
        return stored, any(token.signal == stored.id for token in applied.emitted)


class ParentReporter:
    """Reports the end of a child execution to its parent, as a signal."""

    def __init__(self, journal: Journal, blob: BlobStore, signals: SignalDelivery) -> None:
        self._journal = journal
        self._blob = blob
        self._signals = signals

    async def report(self, data: ExecutionData, parent: Parent, end: ExecutionEnded) -> None:
        """Deliver the end to the parent, then mark it as reported."""
        # crash here: the row of the child is still marked as not reported; `Children.recover` reports it
        failpoint.hit("reporting")
        child: ExecutionRecord = data.accepted
        history = await read_history(self._journal, self._blob, child, data.plan)
        report = {
            "execution_id": child.id,
            "status": end.status,
            "output": await adopt(self._blob, await history.output(), parent.execution),
            "error": error_document(end.error),
        }
        try:
            check_json(report["output"])
        except (
            LimitExceededError
        ) as error:  # the parts of the output are below the limit, all of them are not
            report |= {
                "status": "failed",
                "output": None,
                "error": error_document(Error(error.code, error.message)),
            }
        stored = await store_value(self._blob, f"{parent.execution}/signal/{child.id}", encode_value(report))
        signal = SignalReceived(end.at, child.id, f"{SIGNAL}{child.id}", parent.path, stored)
        try:
            await self._signals.deliver(parent.execution, signal)
        except (ExecutionEndedError, KeyError):
            signal_log.debug("%s ended after its parent", child.id)
        await self._journal.mark_reported(child.id)
