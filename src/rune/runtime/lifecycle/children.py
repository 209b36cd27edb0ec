"""Signals and child executions.

A signal is recorded in the journal first and then delivered to the node that waits for it. A child execution is started
by a node of its parent; its end reaches the parent as a signal, and it is cancelled when the parent ends.
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

log = logging.getLogger("rune.children")

BATCH = 500
SIGNAL = "child:"
ABANDONED = FinishExecution(
    "cancelled", Error("PARENT_ENDED", "the parent execution no longer waits for this one")
)


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
        applied = await self._state.signal(execution, stored)
        # crash here: the resumed tokens are in the state, and a rebuilt state has them too; the scheduler sends them
        failpoint.hit("heard")
        data = await self._data_cache.get(execution)
        await self._queue.send(execution, applied.emitted, data.accepted.priority)
        return stored, any(token.signal == stored.id for token in applied.emitted)


class Children:
    """Starts child executions, reports their ends to their parents, and cancels them when their parent ends."""

    def __init__(
        self,
        journal: Journal,
        blob: BlobStore,
        workflows: WorkflowStore,
        plans: PlanCache,
        data_cache: ExecutionDataCache,
        launcher: Launcher,
        signals: SignalDelivery,
        finisher: Finisher,
        instrumentation: Instrumentation,
    ) -> None:
        self._journal = journal
        self._blob = blob
        self._workflows = workflows
        self._plans = plans
        self._data_cache = data_cache
        self._launcher = launcher
        self._signals = signals
        self._finisher = finisher
        self._instrumentation = instrumentation

    async def launch(
        self,
        data: ExecutionData,
        token: Token,
        claim: Claim,
        workflow: str,
        which: str | None,
        input: Any,
        waits: bool,
    ) -> str:
        """Start the child of an attempt, or return the child that an earlier run of the attempt started."""
        parent = data.accepted
        if parent.depth >= LIMITS.child_depth:
            raise LimitExceededError("nested executions", LIMITS.child_depth)
        name = token_name(token.node, token.path, data.plan.ids)
        child = child_id(parent.id, name, token.attempt)
        if await self._journal.accepted(child) is not None:
            return child
        hash = await self._definition_hash(parent.id, name, workflow, which)
        plan = await self._plans.plan(hash)
        payload = encode_value(input)
        _, problems = check_input(plan.definition, payload)
        if problems:
            message = "; ".join(f"{each.path}: {each.message}" for each in problems[:5])
            raise NodeFailure(f"`{workflow}` rejects its start payload: {message}", code="INVALID_INPUT")
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
            trace=self._instrumentation.outgoing_trace(parent, data.plan, token),
            principal=parent.principal,
        )
        # crash here: the child runs; the attempt runs again and finds it
        failpoint.hit("launched")
        return child

    async def _definition_hash(self, parent: str, name: str, workflow: str, which: str | None) -> str:
        """Return the definition to run: a retry uses that of the first attempt, whatever was deployed since."""
        first = await self._journal.accepted(child_id(parent, name, 1))
        if first is not None:
            return first.hash
        return (await self._workflows.find(workflow, which)).hash

    async def abandon(self, data: ExecutionData, token: Token, now: int) -> None:
        """Cancel the child that a token waits for, before the token itself ends."""
        name = token_name(token.node, token.path, data.plan.ids)
        await self._cancel(child_id(data.accepted.id, name, token.attempt), now)

    async def _cancel(self, child: str, now: int) -> None:
        accepted = await self._journal.accepted(child)
        if accepted is not None and accepted.parent is not None and await self._journal.end(child) is None:
            await self._finisher.finish(child, ABANDONED, now)

    async def ended(self, data: ExecutionData, end: ExecutionEnded) -> None:
        """Cancel the children of an ended execution and report its end to its parent."""
        if data.plan.launches:
            for child in await self._journal.children(data.accepted.id):
                await self._cancel(child, end.at)
        if data.accepted.parent is not None:
            await self._report_to_parent(data, data.accepted.parent, end)

    async def _report_to_parent(self, data: ExecutionData, parent: Parent, end: ExecutionEnded) -> None:
        # crash here: the row of the child is still marked as not reported; `recover` reports it
        failpoint.hit("telling")
        child: ExecutionRecord = data.accepted
        history = await read_history(self._journal, self._blob, child, data.plan)
        report = {
            "execution_id": child.id,
            "status": end.status,
            "output": await adopt(self._blob, await history.output(), parent.execution),
            "error": error_document(end.error),
        }
        stored = await store_value(self._blob, f"{parent.execution}/signal/{child.id}", encode_value(report))
        signal = SignalReceived(end.at, child.id, f"{SIGNAL}{child.id}", parent.path, stored)
        try:
            await self._signals.deliver(parent.execution, signal)
        except (ExecutionEndedError, KeyError):
            log.debug("%s ended after its parent", child.id)
        await self._journal.mark_reported(child.id)

    async def recover(self, now: int) -> None:
        """Report the ends, and cancel the orphans, that a crashed process left behind."""
        while rows := await self._journal.unreported_children(BATCH):
            for each in rows:
                end = await self._journal.end(each)
                if end is None:
                    await self._finisher.finish(each, ABANDONED, now)
                else:
                    await self.ended(await self._data_cache.get(each), end)
