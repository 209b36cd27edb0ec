"""Hands executions over to the legacy executor through its queue `workflow.started`, or consumes that queue instead.

The legacy executor runs whole workflows and owns the queue: an existing queue is used as it is.
"""

from __future__ import annotations

import asyncio
import logging

from rune.adapters.rabbitmq.amqp.channel import Channel
from rune.adapters.rabbitmq.amqp.client import REPLY_TIMEOUT_S, ReconnectingConnection
from rune.adapters.rabbitmq.amqp.connection import Connection
from rune.adapters.rabbitmq.amqp.errors import AmqpError, UnroutableError
from rune.adapters.rabbitmq.amqp.frames import Message
from rune.adapters.rabbitmq.queue import HINT, ForeignMessageHandler, dead_letter_properties, decode_foreign
from rune.adapters.rabbitmq.topology import Topology, declare, find_or_declare
from rune.errors import RuneError
from rune.ports.journal import StoreUnavailableError
from rune.ports.queue import LeftToOthersError

log = logging.getLogger("rune.legacy")

PREFETCH = 32
RETRY_DELAY_S = 1.0
"""Delay before a message is requeued while a store is unavailable."""


class LegacyExecutor:
    """Publishes starts for the legacy executor, or consumes them in its place."""

    def __init__(
        self, url: str, topology: Topology, name: str, handler: ForeignMessageHandler | None = None
    ) -> None:
        """`handler` handles consumed starts; it is needed only to consume."""
        self._topology = topology
        self._name = f"{name} legacy"
        self._handler = handler
        self._consuming = False
        self._channel: Channel | None = None
        self._decoding = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._link = ReconnectingConnection(url, self._name, self._prepare, deadline=REPLY_TIMEOUT_S)

    def start(self) -> None:
        """Start consuming. Without it, the connection is opened by the first `hand_over`."""
        self._consuming = True
        self._link.start()

    async def hand_over(self, body: bytes) -> None:
        """Publish a start; returns when the broker has confirmed it."""
        connection = await self._link.up(REPLY_TIMEOUT_S)
        assert self._channel is not None
        name = self._topology.started
        try:
            await self._channel.publish(name, name, body, HINT)
        except UnroutableError:
            # The queue was deleted; only consumers are notified of that.
            await find_or_declare(connection, self._topology.legacy)
            await self._channel.publish(name, name, body, HINT)

    async def close(self) -> None:
        """Cancel handlers in progress; the broker redelivers their messages."""
        for each in self._tasks:
            each.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._link.close()

    async def _prepare(self, connection: Connection) -> None:
        await declare(connection, self._topology)
        name = self._topology.started
        await find_or_declare(connection, self._topology.legacy)
        channel = await connection.channel()
        await channel.confirm()
        channel.on_close = lambda error: self._link.drop(error.message)
        self._channel = channel
        if self._consuming:
            await channel.prefetch(PREFETCH)
            reason = f"{name} was deleted"
            await channel.consume(name, self._on_message, self._name, lambda _: self._link.drop(reason))

    def _on_message(self, message: Message) -> None:
        assert self._channel is not None
        assert self._handler is not None
        task = asyncio.create_task(self._handle(self._channel, self._handler, message))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _handle(self, channel: Channel, handler: ForeignMessageHandler, message: Message) -> None:
        try:
            await handler(await decode_foreign(message.body, self._decoding), message.body)
        except (StoreUnavailableError, LeftToOthersError) as error:
            log.warning("a start is retried later: %s", error)
            await asyncio.sleep(RETRY_DELAY_S)
            channel.nack(message.tag, requeue=True)
            return
        except Exception as error:
            code = error.code if isinstance(error, RuneError) else "DEAD_LETTERED"
            log.error("a start is a dead letter: %s: %s", code, error)
            try:
                await self._dead_letter(channel, message, code, str(error))
            except AmqpError as lost:
                # A new connection declares the missing exchange, and the broker redelivers the message.
                self._link.drop(lost.message)
                return
        channel.ack(message.tag)

    async def _dead_letter(self, channel: Channel, message: Message, code: str, reason: str) -> None:
        stamp = dead_letter_properties(message, code, reason, self._topology.execution)
        exchange = self._topology.dead_exchange
        await channel.publish(exchange, self._topology.execution, message.body, stamp)
