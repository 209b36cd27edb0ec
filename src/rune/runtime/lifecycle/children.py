"""Signals: what is said to an execution is a fact first, and then looks for whoever waits for it.

Children: executions that a node of another one starts, waits for, and takes along when it ends.
"""

from __future__ import annotations

import logging
from typing import Any

from rune.codec.facts import encode_value
from rune.core.execution.decision import FinishExecution
from rune.core.execution.fact import ExecutionEnded, Fact, SignalReceived
from rune.core.execution.outcome import Error
from rune.core.execution.token import Token, token_name
from rune.core.limits import LIMITS
from rune.documents.loader import check_input
from rune.errors import LimitExceededError, NodeFailure
from rune.ids import child_id
from rune.nodes.blobs import adopt, names_blobs
from rune.ports.blobs import BlobStore
from rune.ports.journal import ExecutionEndedError, ExecutionRecord, Journal, Parent
from rune.ports.queue import Queue
from rune.ports.state import Claim, State
from rune.ports.workflows import WorkflowStore
from rune.runtime import failpoint
from rune.runtime.instrumentation import Instrumentation
from rune.runtime.lifecycle.finisher import Finisher
from rune.runtime.lifecycle.launcher import Launcher, StartOptions
from rune.runtime.plan_cache import PlanCache
from rune.runtime.queries.history import error_document, read_history
from rune.runtime.values import ExecutionData, ExecutionDataCache, store_value


class SignalDelivery:
    """The one way in which a signal reaches an execution, whoever sends it."""

    def __init__(self, journal: Journal, state: State, queue: Queue, books: ExecutionDataCache) -> None:
        self._journal = journal
        self._state = state
        self._queue = queue
        self._books = books

    async def deliver(self, execution: str, signal: SignalReceived) -> tuple[SignalReceived, bool]:
        """Journal, then state, then queue; raises Ended. Answers the signal as it is stored under its id, and whether
        it resumed somebody."""
        stored: Fact
        (stored,) = await self._journal.record(execution, [signal])
        failpoint.hit(
            "signalled"
        )  # crash here: the row is there, and with it the mark that somebody must look
        assert isinstance(stored, SignalReceived)
        applied = await self._state.signal(execution, stored)
        failpoint.hit("heard")  # crash here: what was resumed is in the state; the next fold finds it again
        book = await self._books.get(execution)
        await self._queue.send(execution, applied.emitted, book.accepted.priority)
        return stored, any(token.signal == stored.id for token in applied.emitted)


log = logging.getLogger("rune.children")

ABANDONED = FinishExecution(
    "cancelled", Error("PARENT_ENDED", "the execution that waited for this one has ended")
)
SIGNAL = "child:"
BATCH = 500


class Children:
    """Starts children, tells parents of their end, and ends those whose parent is gone."""

    def __init__(
        self,
        journal: Journal,
        blob: BlobStore,
        library: WorkflowStore,
        plans: PlanCache,
        books: ExecutionDataCache,
        launcher: Launcher,
        signals: SignalDelivery,
        endings: Finisher,
        witness: Instrumentation,
    ) -> None:
        self._journal = journal
        self._blob = blob
        self._library = library
        self._plans = plans
        self._books = books
        self._launcher = launcher
        self._signals = signals
        self._endings = endings
        self._witness = witness

    async def launch(
        self,
        book: ExecutionData,
        token: Token,
        claim: Claim,
        workflow: str,
        which: str | None,
        input: Any,
        waits: bool,
    ) -> str:
        """Start the child of an attempt; if it was started before, that is the one."""
        parent = book.accepted
        if parent.depth >= LIMITS.child_depth:
            raise LimitExceededError("executions inside executions", LIMITS.child_depth)
        name = token_name(token.node, token.path, book.plan.ids)
        child = child_id(parent.id, name, token.attempt)
        if await self._journal.accepted(child) is not None:
            return child
        hash = await self._hash(parent.id, name, workflow, which)
        plan = await self._plans.plan(hash)
        payload = encode_value(input)
        _, problems = check_input(plan.definition, payload)
        if problems:
            message = "; ".join(f"{each.path}: {each.message}" for each in problems[:5])
            raise NodeFailure(f"`{workflow}` refuses its start payload: {message}", code="INVALID_INPUT")
        failpoint.hit("launching")
        await self._launcher.start(
            plan,
            payload,
            StartOptions(labels=parent.labels, fake_time=parent.fake_time),
            execution=child,
            parent=Parent(parent.id, token.node, token.path, token.attempt) if waits else None,
            depth=parent.depth + 1,
            needs=(parent.id, *parent.needs) if names_blobs(payload) else (),
            at=claim.now,
            trace=self._witness.outgoing_trace(parent, book.plan, token),
            principal=parent.principal,
        )
        failpoint.hit("launched")  # crash here: the child runs; the attempt is made again and finds it
        return child

    async def _hash(self, parent: str, name: str, workflow: str, which: str | None) -> str:
        """Which definition: that of the first attempt, whatever was deployed since."""
        first = await self._journal.accepted(child_id(parent, name, 1))
        if first is not None:
            return first.hash
        return (await self._library.find(workflow, which)).hash

    async def abandon(self, book: ExecutionData, token: Token, now: int) -> None:
        """The token that waits will never look at its child again: the child ends before the token does."""
        name = token_name(token.node, token.path, book.plan.ids)
        await self._cancel(child_id(book.accepted.id, name, token.attempt), now)

    async def _cancel(self, child: str, now: int) -> None:
        accepted = await self._journal.accepted(child)
        if accepted is not None and accepted.parent is not None and await self._journal.end(child) is None:
            await self._endings.finish(child, ABANDONED, now)

    async def ended(self, book: ExecutionData, end: ExecutionEnded) -> None:
        """An execution has its terminal row: those it waits for end too, and whoever waits for it is told."""
        if book.plan.launches:
            for child in await self._journal.children(book.accepted.id):
                await self._cancel(child, end.at)
        if book.accepted.parent is not None:
            await self._tell(book, book.accepted.parent, end)

    async def _tell(self, book: ExecutionData, parent: Parent, end: ExecutionEnded) -> None:
        failpoint.hit("telling")  # crash here: its row says that nobody was told; the next owner does it
        child: ExecutionRecord = book.accepted
        history = await read_history(self._journal, self._blob, child, book.plan)
        said = {
            "execution_id": child.id,
            "status": end.status,
            "output": await adopt(self._blob, await history.output(), parent.execution),
            "error": error_document(end.error),
        }
        kept = await store_value(self._blob, f"{parent.execution}/signal/{child.id}", encode_value(said))
        signal = SignalReceived(end.at, child.id, f"{SIGNAL}{child.id}", parent.path, kept)
        try:
            await self._signals.deliver(parent.execution, signal)
        except (ExecutionEndedError, KeyError):
            log.debug("%s ended after its parent", child.id)
        await self._journal.mark_reported(child.id)

    async def recover(self, now: int) -> None:
        """What a process that died left undone between parents and children."""
        while rows := await self._journal.unreported_children(BATCH):
            for each in rows:
                end = await self._journal.end(each)
                if end is None:
                    await self._endings.finish(each, ABANDONED, now)
                else:
                    await self.ended(await self._books.get(each), end)
