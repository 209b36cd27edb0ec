"""Signals to executions: those that users send, and the ends of child executions.

A signal is recorded in the journal first and then delivered to the node that waits for it.
"""

from __future__ import annotations

import logging

from rune.codec.facts import encode_value
from rune.core.execution.fact import CHILD_SIGNAL, ExecutionEnded, Fact, SignalReceived
from rune.nodes.blobs import adopt
from rune.ports.blobs import BlobStore
from rune.ports.journal import ExecutionEndedError, ExecutionRecord, Journal, Parent
from rune.ports.queue import Queue
from rune.ports.state import State
from rune.runtime import failpoint
from rune.runtime.queries.history import error_document, read_history
from rune.runtime.values import ExecutionData, ExecutionDataCache, store_value

log = logging.getLogger("rune.children")

SIGNAL = CHILD_SIGNAL


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


class ParentReporter:
    """Reports the end of a child execution to its parent, as a signal."""

    def __init__(self, journal: Journal, blob: BlobStore, signals: SignalDelivery) -> None:
        self._journal = journal
        self._blob = blob
        self._signals = signals

    async def report(self, data: ExecutionData, parent: Parent, end: ExecutionEnded) -> None:
        """Deliver the end to the parent, then mark it as reported."""
        # crash here: the row of the child is still marked as not reported; `Children.recover` reports it
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
