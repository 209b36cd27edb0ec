"""Queues of the RabbitMQ adapter on a vhost of their own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from rune.adapters.rabbitmq.amqp.client import Message, connect
from rune.adapters.rabbitmq.amqp.frames import MessageProperties
from rune.adapters.rabbitmq.queue import RabbitQueue
from rune.adapters.rabbitmq.topology import DELIVERIES
from tests.support.services.rabbitmq import Broker, broker


class VhostQueues:
    """A vhost and the queues opened on it."""

    def __init__(self, url: str, name: str) -> None:
        self.url = url
        self.name = name
        self._opened: list[RabbitQueue] = []

    def queue(self, consumer: str = "one", **options: Any) -> RabbitQueue:
        made = RabbitQueue(options.pop("url", self.url), consumer=consumer, **options)
        self._opened.append(made)
        return made

    async def close(self) -> None:
        for each in self._opened:
            await each.close()

    async def waiting(self, queue: str) -> int:
        """Return the number of ready messages."""
        connection = await connect(self.url)
        try:
            found = await (await connection.channel()).declare_queue(queue, passive=True)
            return found.message_count or 0
        finally:
            await connection.close()

    async def put(
        self, queue: str, body: bytes, headers: dict[str, Any] | None = None, *, message_id: str | None = None
    ) -> None:
        """Publish a message directly to a queue."""
        connection = await connect(self.url)
        channel = await connection.channel()
        await channel.confirm()
        await channel.publish(
            "", queue, body, MessageProperties(headers=headers or {}, message_id=message_id)
        )
        await connection.close()

    async def take(self, queue: str) -> Message | None:
        connection = await connect(self.url)
        channel = await connection.channel()
        found = await channel.get(queue)
        if found is not None:
            channel.ack(found.tag)
        await connection.close()
        return found


async def exhaust_deliveries(url: str, queue: str) -> None:
    """Requeue the message until the delivery limit is exceeded, as dying workers would."""
    connection = await connect(url)
    channel = await connection.channel()
    for _ in range(DELIVERIES + 1):
        message = await channel.get(queue)
        assert message is not None
        channel.nack(message.tag, requeue=True)
    assert await channel.get(queue) is None
    await connection.close()


@asynccontextmanager
async def vhost_queues(on: Broker | None = None) -> AsyncIterator[VhostQueues]:
    """Create a vhost; close its queues and delete it afterwards."""
    server = on or broker()
    with server.vhost() as name:
        queues = VhostQueues(server.url(name), name)
        try:
            yield queues
        finally:
            await queues.close()
