"""Queues on a vhost of their own, and a look at what the broker has."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from rune.adapters.rabbitmq.amqp.client import Message, connect
from rune.adapters.rabbitmq.queue import RabbitQueue
from rune.adapters.rabbitmq.topology import DELIVERIES
from tests.support.services.rabbitmq import Broker, broker


class Place:
    """A vhost, and the queues that were opened on it."""

    def __init__(self, url: str, vhost: str) -> None:
        self.url = url
        self.vhost = vhost
        self._opened: list[RabbitQueue] = []

    def queue(self, consumer: str = "one", **given: Any) -> RabbitQueue:
        made = RabbitQueue(given.pop("url", self.url), consumer=consumer, **given)
        self._opened.append(made)
        return made

    async def close(self) -> None:
        for each in self._opened:
            await each.close()

    async def waiting(self, queue: str) -> int:
        """How many messages nobody holds."""
        connection = await connect(self.url)
        try:
            found = await (await connection.channel()).declare_queue(queue, passive=True)
            return found.message_count or 0
        finally:
            await connection.close()

    async def put(self, queue: str, body: bytes) -> None:
        """A message by somebody who knows the name of a queue and nothing else."""
        connection = await connect(self.url)
        channel = await connection.channel()
        await channel.confirm()
        await channel.publish("", queue, body)
        await connection.close()

    async def take(self, queue: str) -> Message | None:
        connection = await connect(self.url)
        channel = await connection.channel()
        found = await channel.get(queue)
        if found is not None:
            channel.ack(found.tag)
        await connection.close()
        return found


async def worn_out(url: str, queue: str) -> None:
    """What happens to a message whose workers keep dying."""
    connection = await connect(url)
    channel = await connection.channel()
    for _ in range(DELIVERIES + 1):
        message = await channel.get(queue)
        assert message is not None
        channel.nack(message.tag, requeue=True)
    assert await channel.get(queue) is None
    await connection.close()


@asynccontextmanager
async def place(on: Broker | None = None) -> AsyncIterator[Place]:
    here = on or broker()
    with here.vhost() as vhost:
        made = Place(here.url(vhost), vhost)
        try:
            yield made
        finally:
            await made.close()
