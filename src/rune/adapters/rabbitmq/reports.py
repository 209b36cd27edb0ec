"""Reports: statuses and completions on their way out, and whoever listens to them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from rune.adapters.rabbitmq.channel import Channel
from rune.adapters.rabbitmq.client import DEADLINE
from rune.adapters.rabbitmq.connection import Connection
from rune.adapters.rabbitmq.errors import AmqpError
from rune.adapters.rabbitmq.frames import Message, Stamp
from rune.adapters.rabbitmq.link import Link
from rune.adapters.rabbitmq.publisher import Publisher
from rune.adapters.rabbitmq.topology import Topology, declare
from rune.wire.rabbit import NodeStatusMessage, encode_message

log = logging.getLogger("rune.rabbitmq")

STATUS = Stamp(persistent=False, type="NodeStatusMessage", app_id="rune")
COMPLETION = Stamp(type="CompletionMessage", app_id="rune")
BATCH = 100
AGAIN = 1.0  # s before a batch that could not be handled is tried again

Handler = Callable[[Sequence[bytes]], Awaitable[None]]


class Reports:
    """Publishes over the connection that also publishes work, so that what is told first comes first."""

    def __init__(self, publisher: Publisher, topology: Topology) -> None:
        self._publisher = publisher
        self._topology = topology

    def status(self, message: NodeStatusMessage) -> bool:
        """Told if the broker takes messages right now; whether it did."""
        name = self._topology.status
        return self._publisher.post(name, name, encode_message(message), STATUS)

    async def completion(self, body: bytes) -> None:
        """Told for certain: done when the broker has it. The bytes are those that were stored."""
        name = self._topology.completion
        await self._publisher.publish([(name, name, body, COMPLETION)])


class Listener:
    """Reads a queue in batches. What was handled is acknowledged together, what was not comes again."""

    def __init__(
        self,
        url: str,
        topology: Topology,
        queue: str,
        handler: Handler,
        *,
        name: str = "listener",
        batch: int = BATCH,
    ) -> None:
        self._topology = topology
        self._queue = queue
        self._handler = handler
        self._name = name
        self._batch = batch
        self._channel: Channel | None = None
        self._messages: list[Message] = []
        self._arrived = asyncio.Event()
        self._running: asyncio.Task[None] | None = None
        self._link = Link(url, name, self._prepare, deadline=DEADLINE)

    def start(self) -> None:
        """Begin to listen, for as long as it takes to connect."""
        if self._running is None:
            self._link.start()
            self._running = asyncio.create_task(self._run())

    async def close(self) -> None:
        """What is being handled is cancelled, and comes again."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)
        await self._link.close()

    async def _prepare(self, connection: Connection) -> None:
        await declare(connection, self._topology)
        channel = await connection.channel()
        channel.on_close = lambda error: self._link.drop(error.message)
        self._channel = channel
        self._messages.clear()
        await channel.prefetch(2 * self._batch)  # one batch on its way while another is handled
        await channel.consume(
            self._queue, self._take, self._name, lambda _: self._link.drop(f"{self._queue} was deleted")
        )

    def _take(self, message: Message) -> None:
        self._messages.append(message)
        self._arrived.set()

    async def _run(self) -> None:
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            while self._messages:
                channel, taken = self._channel, self._messages[: self._batch]
                del self._messages[: self._batch]
                assert channel is not None
                await self._handle(channel, taken)

    async def _handle(self, channel: Channel, taken: Sequence[Message]) -> None:
        try:
            await self._handler([each.body for each in taken])
        except AmqpError as error:
            log.warning("%s: %s", self._name, error.message)
        except Exception:
            log.exception("%s: a batch could not be handled", self._name)
        else:
            for each in taken:
                channel.ack(each.tag)
            return
        await asyncio.sleep(AGAIN)
        for each in taken:
            channel.nack(each.tag, requeue=True)
