"""What a broker tells to somebody who takes no part, and whether it would let them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from rune.adapters.rabbitmq.amqp.address import parse_address
from rune.adapters.rabbitmq.amqp.channel import Channel
from rune.adapters.rabbitmq.amqp.client import connect
from rune.adapters.rabbitmq.amqp.connection import Connection
from rune.adapters.rabbitmq.amqp.errors import ChannelClosedError, PublishError
from rune.adapters.rabbitmq.topology import Rights, Topology, WorkQueue, roles, user_name

REFUSED, MISSING, DIFFERENT = 403, 404, 406
NOWHERE = "doctor"
"""A routing key that no queue is bound to: what goes there goes nowhere."""

Act = Callable[[Channel], Awaitable[Any]]


async def inspect(url: str, topology: Topology) -> dict[str, Any]:
    """Findings, by the names that a survey has for them. Nothing is made, and nothing is taken from a queue.

    A user that is called as a role is asked for what that role does. Anybody else may be a worker or, where that is not
    so, the master."""
    user = parse_address(url).user
    needs = _needs(topology)
    named = [role for role in needs if user == user_name(role)]
    connection = await connect(url, name="doctor")
    try:
        found = {role: await _looked(connection, needs[role]) for role in named or needs}
        role = next((role for role, (lacks, _) in found.items() if not lacks), next(iter(found)))
        lacks, missing = found[role]
        return {
            "rabbitmq": ".".join(map(str, connection.version)),
            "queue_role": role,
            "queue_lacks": lacks,
            "queue_missing": missing,
            "queue_differs": await _different(connection, topology),
        }
    finally:
        await connection.close()


def _needs(topology: Topology) -> dict[str, Rights]:
    """Of what a role does, as much as can be tried: what is published to a fanout would arrive somewhere."""
    direct = (topology.execution, topology.status, topology.completion)
    return {
        role: Rights(
            tuple(each for each in direct if each in rights.publish),
            tuple(each for each in rights.read if each != topology.started),
        )
        for role, rights in roles(topology).items()
    }


async def _different(connection: Connection, topology: Topology) -> str:
    """The first queue that was made otherwise than these settings would. Declaring what is there changes nothing; who
    may not declare is not told."""
    for queue in topology.table(connection.version):
        if not await _tried(connection, partial(_known, queue.name)):
            answer = await _tried(connection, partial(_declared, queue))
            if answer in (REFUSED, DIFFERENT):
                return queue.name if answer == DIFFERENT else ""
    return ""


async def _known(queue: str, channel: Channel) -> None:
    await channel.declare_queue(queue, passive=True)


async def _declared(queue: WorkQueue, channel: Channel) -> None:
    await channel.declare_queue(queue.name, queue.arguments)


async def _looked(connection: Connection, rights: Rights) -> tuple[tuple[str, ...], int]:
    """What is refused, and how much is not there."""
    lacks: list[str] = []
    missing = 0
    for word, names, act in (("read", rights.read, _readable), ("write", rights.publish, _written)):
        for name in names:
            answer = await _tried(connection, partial(act, name))
            lacks += [f"{word} {name}"] if answer == REFUSED else []
            missing += answer == MISSING
    return tuple(lacks), missing


async def _tried(connection: Connection, act: Act) -> int:
    """With what the broker refused it; 0: it did not."""
    channel = await connection.channel()
    try:
        await act(channel)
        await channel.close()
    except ChannelClosedError as closed:
        return closed.reply
    return 0


async def _readable(queue: str, channel: Channel) -> None:
    told = await channel.declare_queue(queue, passive=True)
    if told.message_count:
        return  # to look would be to take
    found = await channel.get(queue)
    if found is not None:
        channel.nack(found.tag, requeue=True)


async def _written(exchange: str, channel: Channel) -> None:
    await channel.confirm()
    try:
        await channel.publish(exchange, NOWHERE, b"{}")
    except PublishError:
        return  # as it should be: nobody is bound there
