"""`workflow.started`: the queue of the executor that runs whole workflows, for as long as both are there.

The queue is theirs: if it is there it is used as it is, and made only if it is not.
"""

from __future__ import annotations

import asyncio
import logging

from rune.adapters.rabbitmq.amqp.channel import Channel
from rune.adapters.rabbitmq.amqp.client import REPLY_TIMEOUT_S, ReconnectingConnection
from rune.adapters.rabbitmq.amqp.connection import Connection
from rune.adapters.rabbitmq.amqp.errors import AmqpError, UnroutableError
from rune.adapters.rabbitmq.amqp.frames import Message, MessageProperties
from rune.adapters.rabbitmq.queue import HINT, ForeignMessageHandler, shortened
from rune.adapters.rabbitmq.topology import Topology, declare, find_or_make
from rune.codec.messages import decode_execution
from rune.errors import RuneError
from rune.ports.journal import StoreUnavailableError

log = logging.getLogger("rune.legacy")

PREFETCH = 32
RETRY_DELAY_S = 1.0  # s before a message is tried again while a store is away


class LegacyExecutor:
    """Hands executions over to the other executor, or takes its place."""

    def __init__(self, url: str, topology: Topology, name: str) -> None:
        self._topology = topology
        self._name = f"{name} legacy"
        self._take: ForeignMessageHandler | None = None
        self._reading = False
        self._channel: Channel | None = None
        self._works: set[asyncio.Task[None]] = set()
        self._link = ReconnectingConnection(url, self._name, self._prepare, deadline=REPLY_TIMEOUT_S)

    def on_result(self, take: ForeignMessageHandler) -> None:
        """What to do with what is in the queue, should it be read."""
        self._take = take

    def start(self) -> None:
        """Begin to read, for as long as it takes to connect. Otherwise nothing is connected before it is needed."""
        self._reading = True
        self._link.start()

    async def hand_over(self, body: bytes) -> None:
        """Done when the broker has it."""
        connection = await self._link.up(REPLY_TIMEOUT_S)
        assert self._channel is not None
        name = self._topology.started
        try:
            await self._channel.publish(name, name, body, HINT)
        except UnroutableError:  # who does not read the queue is not told that it has gone
            await find_or_make(connection, self._topology.elsewhere)
            await self._channel.publish(name, name, body, HINT)

    async def close(self) -> None:
        """What is being handled is cancelled, and comes again."""
        for each in self._works:
            each.cancel()
        await asyncio.gather(*self._works, return_exceptions=True)
        await self._link.close()

    async def _prepare(self, connection: Connection) -> None:
        await declare(connection, self._topology)
        name = self._topology.started
        await find_or_make(connection, self._topology.elsewhere)
        channel = await connection.channel()
        await channel.confirm()
        channel.on_close = lambda error: self._link.drop(error.message)
        self._channel = channel
        if self._reading:
            await channel.prefetch(PREFETCH)
            gone = f"{name} was deleted"
            await channel.consume(name, self._came, self._name, lambda _: self._link.drop(gone))

    def _came(self, message: Message) -> None:
        assert self._channel is not None
        assert self._take is not None
        work = asyncio.create_task(self._handle(self._channel, self._take, message))
        self._works.add(work)
        work.add_done_callback(self._works.discard)

    async def _handle(self, channel: Channel, take: ForeignMessageHandler, message: Message) -> None:
        try:
            await take(decode_execution(message.body), message.body)
        except StoreUnavailableError as away:
            log.warning("a start waits: %s", away.message)
            await asyncio.sleep(RETRY_DELAY_S)
            channel.nack(message.tag, requeue=True)
            return
        except Exception as error:
            code = error.code if isinstance(error, RuneError) else "DEAD_LETTERED"
            log.error("a start is a dead letter: %s: %s", code, error)
            try:
                await self._bury(channel, message, code, str(error))
            except AmqpError as lost:  # a new connection sets up what is missing, and brings it again
                self._link.drop(lost.message)
                return
        channel.ack(message.tag)

    async def _bury(self, channel: Channel, message: Message, code: str, reason: str) -> None:
        said = {
            "rune-code": code,
            "rune-reason": shortened(reason),
            "rune-queue": self._topology.execution,
        }
        stamp = MessageProperties(headers=said, type="NodeExecutionMessage", app_id="rune")
        exchange = self._topology.dead_exchange
        await channel.publish(exchange, self._topology.execution, message.body, stamp)
