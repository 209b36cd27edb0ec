"""Operations on dead letters: executions that the engine gave up on, and messages that no worker could process.

Messages are in the queue of a cluster.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from rune.codec.decode import MalformedDataError, decode
from rune.core.execution.fact import ExecutionEnded
from rune.core.json_decoder import JsonDecoder
from rune.core.start_keys import REQUEUE
from rune.ports.journal import (
    DeadLetter,
    ExecutionEndedError,
    ExecutionRecord,
    Journal,
    dead_letter_code,
)
from rune.ports.queue import DeadLetterQueue, QueueDeadLetter
from rune.runtime.services.audit_log import AuditLog, audited
from rune.runtime.services.executions import ExecutionService

MAX_DEAD_MESSAGES = 1_000


class DeadMessage(QueueDeadLetter, frozen=True, kw_only=True):
    """A dead message with the workflow and the node that its body names."""

    workflow: str | None = None
    node: str | None = None


class _MessageIdentity(msgspec.Struct):
    """The fields of a message that identify it."""

    workflow_id: str | None = None
    current_node: str | None = None


_IDENTITY = JsonDecoder(_MessageIdentity)


def _identify(letter: QueueDeadLetter) -> DeadMessage:
    try:
        named = decode(_IDENTITY, letter.body)
    except MalformedDataError:
        named = _MessageIdentity()
    known = msgspec.structs.asdict(letter)
    return DeadMessage(**known, workflow=named.workflow_id, node=named.current_node)


def _way_out(execution: str, message: str, end: ExecutionEnded) -> str:
    """Return which commands continue an ended execution and remove its dead message."""
    remove = f"`rune dlq drop {message}` removes the message"
    if end.status == "completed":
        return remove
    retry = f"`rune retry {execution}`"
    if dead_letter_code(end) is not None:
        retry = f"`rune dlq requeue {execution}` (or {retry} if it is no longer listed)"
    return f"{retry} runs the rest of {execution} again, and {remove}"


class DeadMessageService:
    """Lists, requeues and discards dead messages. An embedded engine has no queue that could hold any."""

    def __init__(self, queue: DeadLetterQueue | None, journal: Journal, audit_log: AuditLog) -> None:
        self._queue = queue
        self._journal = journal
        self.audit_log = audit_log

    async def list(self, limit: int = MAX_DEAD_MESSAGES) -> list[DeadMessage]:
        """Return dead messages, oldest first."""
        return [] if self._queue is None else [_identify(each) for each in await self._queue.list(limit)]

    async def find(self, message: str) -> DeadMessage | None:
        """Return the dead message with this id."""
        found = None if self._queue is None else await self._queue.find(message)
        return None if found is None else _identify(found)

    @audited("dead_message.requeue", "message")
    async def requeue(self, message: str) -> int:
        """Send the messages with this id to their queue again; return their number. Raise ExecutionEndedError if their
        execution has ended: no worker would act on them."""
        if self._queue is None:
            return 0
        found = await self._queue.find(message)
        if found is None:
            return 0
        if found.execution is not None:
            end: ExecutionEnded | None = await self._journal.end(found.execution)
            if end is not None:
                raise ExecutionEndedError(end, _way_out(found.execution, message, end))
        return await self._queue.requeue(message)

    @audited("dead_message.drop", "message")
    async def discard(self, message: str) -> int:
        """Delete the messages with this id; return their number."""
        return 0 if self._queue is None else await self._queue.discard(message)


class DeadLetterService:
    """Lists, requeues and discards dead letters: executions that failed because of the engine, not of a node."""

    def __init__(self, journal: Journal, executions: ExecutionService, audit_log: AuditLog) -> None:
        self.audit_log = audit_log
        self._journal = journal
        self._executions = executions

    async def list(self, limit: int = 100, after: str | None = None) -> Sequence[DeadLetter]:
        """Return the dead letters, newest first."""
        return await self._journal.dead_letters(limit, after)

    @audited("dead_letter.requeue", "letter", made=lambda accepted: {"execution": accepted.id})
    async def requeue(self, letter: str) -> ExecutionRecord:
        """Retry the execution of a dead letter and resolve the letter."""
        accepted = await self._executions.retry(letter, key=f"{REQUEUE}{letter}", own_key=True)
        await self._journal.resolve_dead_letter(letter, "requeued")
        return accepted

    @audited("dead_letter.drop", "letter")
    async def discard(self, letter: str) -> bool:
        """Resolve a dead letter without a retry. Return False if there is none."""
        return await self._journal.resolve_dead_letter(letter, "dropped")
