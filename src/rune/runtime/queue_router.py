"""Decides which named queue serves a token, and supplies the names that the messages of an execution carry."""

from __future__ import annotations

from collections.abc import Sequence

from rune.codec.messages import MessageContext
from rune.core.execution.token import Token
from rune.ports.queue import DEFAULT_QUEUE
from rune.runtime.values import ExecutionDataCache


class QueueRouter:
    """Reads the plans of the executions that this process works on. Only the queues of a cluster need it."""

    def __init__(self, data_cache: ExecutionDataCache) -> None:
        self._data_cache = data_cache

    async def queue_of(self, execution: str, token: Token) -> str:
        """Return the name of the queue that serves the node of a token."""
        plan = (await self._data_cache.get(execution)).plan
        return plan.nodes[token.node].node.queue or DEFAULT_QUEUE

    async def message_context(self, execution: str, tokens: Sequence[Token]) -> MessageContext:
        """Return what the messages of tokens on RabbitMQ carry besides them."""
        data = await self._data_cache.get(execution)
        await data.load_counts([each.path for each in tokens if each.path])
        accepted = data.accepted
        return MessageContext(
            accepted.workflow,
            accepted.hash,
            data.plan.ids,
            traceparent=accepted.trace or None,
            plan=data.plan,
            total=data.count,
        )
