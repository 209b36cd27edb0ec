"""Ends executions: records the terminal row once, then releases the state and notifies parents and waiting callers.

Ends that other processes record are found by querying the journal; a notification makes that query happen sooner.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Set

from rune.core.execution.decision import FinishExecution
from rune.core.execution.fact import ExecutionEnded, ExecutionStarted, Fact
from rune.core.execution.fold import fold
from rune.core.execution.outcome import Error
from rune.errors import RuneError
from rune.ports.journal import ExecutionEndedError, Journal, StoreUnavailableError
from rune.ports.outbox import Kind, Outbox
from rune.ports.state import State
from rune.runtime import failpoint
from rune.runtime.backend import Notifier
from rune.runtime.instrumentation import Instrumentation
from rune.runtime.lifecycle.signals import ParentReporter
from rune.runtime.messaging.completion_publisher import CompletionPublisher
from rune.runtime.values import ExecutionData, ExecutionDataCache

log = logging.getLogger("rune.finisher")

MAX_POLL_S = 1.0  # notifications may be lost
MIN_POLL_S = 0.002  # collects ends that arrive together into one query

ABANDONED = FinishExecution(
    "cancelled", Error("PARENT_ENDED", "the parent execution no longer waits for this one")
)


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
                (stored,) = await self._journal.record(execution, [end])
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

    async def _count_failed_items(self, execution: str, now: int) -> int:
        try:
            data = await self._data_cache.get(execution)
        except RuneError:
            return 0  # without its plan no item of it has run
        if not any(each.fans_out for each in data.plan.nodes):
            return 0
        facts = [each.fact for each in await self._journal.facts(execution)]
        state, _ = fold(data.plan, [ExecutionStarted(data.accepted.at), *facts], now)
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
        except Exception:
            # The end is recorded, and so is that the parent is not notified yet: `Children.recover` retries.
            log.exception("parent or children of %s are not notified of its end yet", execution)


class CompletionWaiters:
    """Futures of callers in this process that wait for the end of an execution."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[asyncio.Future[ExecutionEnded]]] = {}

    def wait_for(self, execution: str) -> asyncio.Future[ExecutionEnded]:
        future: asyncio.Future[ExecutionEnded] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(execution, []).append(future)
        return future

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
        """Wait for notifications until cancelled; query the ends of all awaited executions once in MAX_POLL_S."""
        polled_at = 0.0
        while True:
            notified: set[str] = set()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(MAX_POLL_S):
                    notified = await self._notifier.ended()
            for execution in notified:
                self._data_cache.forget_ended(execution)
            await asyncio.sleep(MIN_POLL_S)
            awaited = self._waiters.executions
            if time.monotonic() - polled_at >= MAX_POLL_S:
                polled_at = time.monotonic()
            else:
                awaited = awaited & notified
            try:
                await self._query(awaited)
            except StoreUnavailableError as error:
                log.info("store unavailable, waiting callers are notified later: %s", error.message)

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
