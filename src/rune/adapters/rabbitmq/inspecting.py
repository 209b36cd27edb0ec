"""What a broker tells to somebody who takes no part, and whether it would let them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from rune.adapters.rabbitmq.channel import Channel
from rune.adapters.rabbitmq.client import connect
from rune.adapters.rabbitmq.connection import Connection
from rune.adapters.rabbitmq.errors import ChannelClosed, NotTaken
from rune.adapters.rabbitmq.topology import Topology

REFUSED, MISSING = 403, 404
NOWHERE = "doctor"
"""A routing key that no queue is bound to: what goes there goes nowhere."""

Act = Callable[[Channel], Awaitable[Any]]


async def inspect(url: str, topology: Topology) -> dict[str, Any]:
    """Findings, by the names that a survey has for them. Nothing is made, and nothing is taken from a queue."""
    connection = await connect(url, name="doctor")
    try:
        lacks, missing = [], 0
        for name in topology.work:
            answer = await _tried(connection, lambda channel, name=name: _readable(channel, name))  # type: ignore[misc]
            lacks += [f"read {name}"] if answer == REFUSED else []
            missing += answer == MISSING
        for name in (topology.execution, topology.status, topology.completion):
            answer = await _tried(connection, lambda channel, name=name: _written(channel, name))  # type: ignore[misc]
            lacks += [f"write {name}"] if answer == REFUSED else []
            missing += answer == MISSING
        return {
            "rabbitmq": ".".join(map(str, connection.version)),
            "queue_lacks": tuple(lacks),
            "queue_missing": missing,
        }
    finally:
        await connection.close()


async def _tried(connection: Connection, act: Act) -> int:
    """With what the broker refused it; 0: it did not."""
    channel = await connection.channel()
    try:
        await act(channel)
        await channel.close()
    except ChannelClosed as closed:
        return closed.reply
    return 0


async def _readable(channel: Channel, queue: str) -> None:
    told = await channel.declare_queue(queue, passive=True)
    if told.message_count:
        return  # to look would be to take
    found = await channel.get(queue)
    if found is not None:
        channel.nack(found.tag, requeue=True)


async def _written(channel: Channel, exchange: str) -> None:
    await channel.confirm()
    try:
        await channel.publish(exchange, NOWHERE, b"{}")
    except NotTaken:
        return  # as it should be: nobody is bound there
