"""Completions: who waits for the end of which execution.

Endings: the terminal row of an execution, and who has to hear of it.

Awaiting: ends that other processes write are found by asking the journal; a hint says when to ask.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Set

from rune.core.execution.decision import FinishExecution
from rune.core.execution.fact import ExecutionEnded, Fact
from rune.errors import RuneError
from rune.ports.journal import ExecutionEndedError, Journal, StoreUnavailableError
from rune.ports.state import State
from rune.runtime import failpoint
from rune.runtime.backend import Notifier
from rune.runtime.instrumentation import Instrumentation
from rune.runtime.lifecycle.outbox import OutboxMarker
from rune.runtime.messaging.completion_publisher import CompletionPublisher
from rune.runtime.values import ExecutionData, ExecutionDataCache


class CompletionWaiters:
    """Announces each end once to everybody who waits for it here."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[asyncio.Future[ExecutionEnded]]] = {}

    def wait_for(self, execution: str) -> asyncio.Future[ExecutionEnded]:
        """A future end."""
        future: asyncio.Future[ExecutionEnded] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(execution, []).append(future)
        return future

    @property
    def is_awaited(self) -> Set[str]:
        """Executions whose end somebody here waits for."""
        return self._waiting.keys()

    def notify(self, execution: str, end: ExecutionEnded) -> None:
        """Tell whoever waits."""
        for future in self._waiting.pop(execution, ()):
            if not future.done():
                future.set_result(end)


log = logging.getLogger("rune.endings")

After = Callable[[ExecutionData, ExecutionEnded], Awaitable[None]]


class Finisher:
    """Ends executions, each once."""

    def __init__(
        self,
        journal: Journal,
        state: State,
        books: ExecutionDataCache,
        completions: CompletionWaiters,
        notices: OutboxMarker,
        witness: Instrumentation,
    ) -> None:
        self._journal = journal
        self._state = state
        self._books = books
        self._completions = completions
        self._notices = notices
        self._witness = witness
        self._after: After | None = None
        self._completing: CompletionPublisher | None = None

    def completes(self, completing: CompletionPublisher) -> None:
        """Who sends a message of each end."""
        self._completing = completing

    def then(self, after: After) -> None:
        """What is to be done with executions that have parents or children once their end is written."""
        self._after = after

    async def finish(self, execution: str, finish: FinishExecution, now: int) -> ExecutionEnded:
        """Write the terminal row; whoever comes second finds it."""
        failpoint.hit(
            "ending"
        )  # crash here: the finish timer, armed by the act that brought the count to zero, fires
        mine = ExecutionEnded(now, finish.status, finish.error)
        stored: Fact | None = await self._journal.end(execution)
        if stored is None:
            try:
                (stored,) = await self._journal.record(execution, [mine])
            except ExecutionEndedError as ended:
                stored = ended.end
        failpoint.hit("ended")
        assert isinstance(stored, ExecutionEnded)
        if stored is mine:
            await self._seen(execution, mine)
        if self._completing is None:
            await self.release(execution, stored)
            self._notices.mark_done(execution, "end")
        else:
            await self._completed(self._completing, execution, stored)
        return stored

    async def _seen(self, execution: str, end: ExecutionEnded) -> None:
        try:
            accepted = (await self._books.get(execution)).accepted
        except RuneError:
            accepted = None  # it is not known for how long it ran
        self._witness.ended(accepted, end)

    async def _completed(self, completing: CompletionPublisher, execution: str, end: ExecutionEnded) -> None:
        """The message needs what is known of the execution. Who lacks that leaves it to a relay."""
        book: ExecutionData | None = None
        try:
            book = await self._books.get(execution)
        except RuneError as error:
            log.warning("the completion of %s is left to a relay: %s", execution, error.message)
        await self.release(execution, end)
        if book is not None:
            completing.ended(book, end)

    async def release(self, execution: str, end: ExecutionEnded) -> None:
        """What follows from a terminal row, however often."""
        await self._state.end(execution, end)
        await self._notify(execution, end)
        self._books.close(execution)
        self._completions.notify(execution, end)

    async def _notify(self, execution: str, end: ExecutionEnded) -> None:
        if self._after is None:
            return
        try:
            book = await self._books.get(execution)
            if book.plan.launches or book.accepted.parent is not None:
                await self._after(book, end)
        except Exception:
            # The end stands. That somebody is still to be told stands beside it, and is looked at again.
            log.exception("parents or children of %s have not heard of its end yet", execution)


_listener_log = logging.getLogger("rune.awaiting")

MAX_POLL_S = 1.0  # s: hints may be lost
MIN_POLL_S = 0.002  # s between two questions: many ends at once are one


class CompletionListener:
    """Tells those who wait here of ends that were written elsewhere."""

    def __init__(self, journal: Journal, completions: CompletionWaiters, news: Notifier) -> None:
        self._journal = journal
        self._completions = completions
        self._news = news

    async def run(self) -> None:
        """Until cancelled."""
        asked_all = 0.0
        while True:
            named: set[str] = set()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(MAX_POLL_S):
                    named = await self._news.ended()
            await asyncio.sleep(MIN_POLL_S)
            awaited = self._completions.is_awaited
            if time.monotonic() - asked_all >= MAX_POLL_S:
                asked_all = time.monotonic()
            else:
                awaited = awaited & named
            try:
                await self._ask(awaited)
            except StoreUnavailableError as away:
                _listener_log.info("ends of others are not heard of: %s", away.message)

    async def _ask(self, executions: Set[str]) -> None:
        if executions:
            for execution, end in (await self._journal.ends_of(list(executions))).items():
                self._completions.notify(execution, end)
