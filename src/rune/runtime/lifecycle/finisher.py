"""Ends executions.

The terminal row is recorded once, then the state is released and parents and waiting callers are notified.
"""

from __future__ import annotations

import asyncio
import logging

from rune.core.definition.model import Settings
from rune.core.execution.decision import FinishExecution
from rune.core.execution.fact import ExecutionEnded, ExecutionStarted
from rune.core.execution.fold import fold
from rune.core.execution.outcome import Error
from rune.errors import RuneError
from rune.ports.journal import (
    ExecutionEndedError,
    Journal,
    StoreUnavailableError,
)
from rune.ports.state import State
from rune.runtime import failpoint
from rune.runtime.execution_data import ExecutionData, ExecutionDataCache
from rune.runtime.lifecycle.completion_waiters import CompletionWaiters
from rune.runtime.lifecycle.outbox_marker import OutboxMarker
from rune.runtime.lifecycle.parent_reporter import ParentReporter
from rune.runtime.messaging.completion_publisher import CompletionPublisher
from rune.runtime.plan_cache import MissingNodeTypeError
from rune.runtime.queries.history import replay
from rune.telemetry.counters import Instrumentation

log = logging.getLogger("rune.finisher")

FIRST_RETRY_S = 1.0
LAST_RETRY_S = 32.0
"""A notification that failed is retried after FIRST_RETRY_S and then twice as long each time. After LAST_RETRY_S it is
left to `Children.recover`, which also covers a process that crashed meanwhile."""

MAX_RETRIED = 1_000

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
        stored = await self._record_end(execution, finish, now, counted=counted)
        await self._follow_end(execution, stored)
        return stored

    async def finish_on_request(self, execution: str, finish: FinishExecution, now: int) -> ExecutionEnded:
        """Do the same for a caller who learns of the terminal row alone: what a store that is away prevents is left to
        the relay."""
        stored = await self._record_end(execution, finish, now, counted=False)
        try:
            await self._follow_end(execution, stored)
        except StoreUnavailableError as error:
            log.warning("what follows the end of %s is left to the relay: %s", execution, error.message)
            self._data_cache.forget(execution)
        return stored

    async def _record_end(
        self, execution: str, finish: FinishExecution, now: int, *, counted: bool
    ) -> ExecutionEnded:
        # crash here: the finish timer fires, armed by the commit that brought the count of live tokens to zero
        failpoint.hit("ending")
        stored = await self._journal.end(execution)
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
        if stored is end:
            await self._count_end(execution, end)
        return stored

    async def _follow_end(self, execution: str, end: ExecutionEnded) -> None:
        if self._publisher is None:
            await self.release(execution, end)
            self._outbox_marker.mark_done(execution, "end")
        else:
            await self._release_and_publish(self._publisher, execution, end)

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
        if not any(node.fans_out for node in data.plan.nodes):
            return 0
        facts = [stored.fact for stored in await self._journal.facts(execution)]
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
