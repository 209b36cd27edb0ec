"""Consumes status messages, in batches, and completion messages, one after another, for an API process.

Both are hints: the journal is the truth. A message is acknowledged whatever its content, so that neither queue grows
unread.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque

from rune.adapters.rabbitmq.amqp.channel import Channel
from rune.adapters.rabbitmq.amqp.client import REPLY_TIMEOUT_S, ReconnectingConnection
from rune.adapters.rabbitmq.amqp.connection import Connection
from rune.adapters.rabbitmq.amqp.frames import Message
from rune.adapters.rabbitmq.topology import Topology, declare
from rune.ports.outbox import EventHandler

log = logging.getLogger("rune.rabbitmq")

STATUS_PREFETCH = 100
COMPLETION_PREFETCH = 1


class RabbitEventConsumer:
    """Passes messages to a handler while `run` runs. The broker distributes them among all API processes."""

    def __init__(self, url: str, topology: Topology, name: str) -> None:
        self._topology = topology
        self._name = f"{name} events"
        self._statuses: deque[tuple[Channel, Message]] = deque()
        self._completions: deque[tuple[Channel, Message]] = deque()
        self._arrived = asyncio.Event()
        self._link = ReconnectingConnection(url, self._name, self._prepare, deadline=REPLY_TIMEOUT_S)

    async def run(self, handler: EventHandler) -> None:
        """Consume until cancelled."""
        self._link.start()
        try:
            while True:
                await self._arrived.wait()
                self._arrived.clear()
                await self._handle_statuses(handler)
                await self._handle_completions(handler)
        finally:
            await self._link.close()

    async def _prepare(self, connection: Connection) -> None:
        await declare(connection, self._topology)
        # The broker redelivers what arrived over the lost connection.
        self._statuses.clear()
        self._completions.clear()
        await self._consume(connection, self._topology.status, STATUS_PREFETCH, self._statuses)
        await self._consume(connection, self._topology.completion, COMPLETION_PREFETCH, self._completions)

    async def _consume(
        self, connection: Connection, queue: str, prefetch: int, arrived: deque[tuple[Channel, Message]]
    ) -> None:
        channel = await connection.channel()
        channel.on_close = lambda error: self._link.drop(error.message)

        def take(message: Message) -> None:
            arrived.append((channel, message))
            self._arrived.set()

        await channel.prefetch(prefetch)
        reason = f"{queue} was deleted"
        await channel.consume(queue, take, f"{self._name} {queue}", lambda _: self._link.drop(reason))

    async def _handle_statuses(self, handler: EventHandler) -> None:
        batch = [self._statuses.popleft() for _ in range(len(self._statuses))]
        if not batch:
            return
        try:
            await handler.on_statuses([message.body for _, message in batch])
        except Exception:
            # Any exception: the next messages may be handled, and no other task would take them.
            log.exception("handling %d statuses failed", len(batch))
        for channel, message in batch:
            channel.ack(message.tag)

    async def _handle_completions(self, handler: EventHandler) -> None:
        while self._completions:
            channel, message = self._completions.popleft()
            try:
                await handler.on_completion(message.body)
            except Exception:
                log.exception("handling a completion failed")
            channel.ack(message.tag)
