"""Delivers signals: each is recorded in the journal first and then delivered to the node that waits for it."""

from __future__ import annotations

from rune.core.execution.fact import SignalReceived
from rune.ports.journal import (
    Journal,
)
from rune.ports.queue import Queue
from rune.ports.state import State
from rune.runtime import failpoint
from rune.runtime.execution_data import ExecutionDataCache


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
        (stored,) = await self._journal.record(execution, [signal])
        # crash here: the row is stored together with a mark that the state has to be updated
        failpoint.hit("signalled")
        # Before the state changes: a repeated delivery emits no tokens, so nothing may fail between change and send.
        data = await self._data_cache.get(execution)
        applied = await self._state.signal(execution, stored)
        # crash here: the resumed tokens are in the state, and a rebuilt state has them too; the scheduler sends them
        failpoint.hit("signal_applied")
        await self._queue.send(execution, applied.emitted, data.accepted.priority)
        return stored, any(token.signal == stored.id for token in applied.emitted)
