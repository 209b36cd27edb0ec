"""Dead letters of a server."""

from __future__ import annotations

from rune.cli.remote.connection import RemoteService, epoch
from rune.cli.remote.executions import accepted_of
from rune.client import ApiError, models
from rune.ports.journal import DeadLetter, ExecutionRecord
from rune.runtime.services.dead_letters import DeadMessage


class RemoteDeadLetterService(RemoteService):
    """The dead-letter service of a server."""

    async def requeue(self, letter: str) -> ExecutionRecord:
        return accepted_of(await self._client.requeue(letter))

    async def discard(self, letter: str) -> bool:
        try:
            await self._client.drop(letter)
        except ApiError as refused:
            if refused.code != "UNKNOWN_DEAD_LETTER":
                raise
            return False
        return True


class RemoteDeadMessageService(RemoteService):
    """The service for dead messages of a server. The messages of a list have no bodies."""

    async def list(self, limit: int) -> list[DeadMessage]:
        return [dead_message_of(each) for each in await self._client.dead_messages(limit)]

    async def find(self, message: str) -> DeadMessage | None:
        try:
            found = await self._client.dead_message(message)
        except ApiError as refused:
            if refused.code != "UNKNOWN_DEAD_LETTER":
                raise
            return None
        return dead_message_of(found, found.body)

    async def requeue(self, message: str) -> int:
        return (await self._client.requeue_message(message)).count

    async def discard(self, message: str) -> int:
        return (await self._client.drop_message(message)).count


def dead_message_of(each: models.DeadMessage, body: str = "") -> DeadMessage:
    return DeadMessage(
        id=each.id,
        code=each.code,
        reason=each.message,
        queue=each.queue,
        execution=each.execution_id,
        body=body.encode(),
        at=None if each.at is None else epoch(each.at),
        workflow=each.workflow_id,
        node=each.node_id,
    )


def dead_letter_of(each: models.DeadLetter) -> DeadLetter:
    return DeadLetter(
        id=each.id,
        execution=each.execution_id,
        workflow=each.workflow_id,
        node=each.node_id or "",
        code=each.code,
        message=each.message,
        at=epoch(each.at),
    )
