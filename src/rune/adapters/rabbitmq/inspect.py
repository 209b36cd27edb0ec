"""Inspects a broker for `rune doctor`: version, missing rights, missing queues and queues with other arguments."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from rune.adapters.rabbitmq.amqp.channel import Channel
from rune.adapters.rabbitmq.amqp.client import connect
from rune.adapters.rabbitmq.amqp.connection import Connection, parse_address
from rune.adapters.rabbitmq.amqp.errors import ChannelClosedError, PublishError
from rune.adapters.rabbitmq.topology import Rights, Topology, WorkQueue, roles, user_name

REFUSED, MISSING, DIFFERENT = 403, 404, 406
UNBOUND_KEY = "doctor"
"""A routing key that no queue is bound to."""

Probe = Callable[[Channel], Awaitable[Any]]


async def inspect(url: str, topology: Topology) -> dict[str, Any]:
    """Return findings by the field names of the inspection. Declares nothing and removes no message.

    A user named after a role is checked for that role; any other user for a worker and, failing that, for the master.
    """
    user = parse_address(url).user
    needs = _needs(topology)
    named = [role for role in needs if user == user_name(role)]
    connection = await connect(url, name="doctor")
    try:
        found = {role: await _missing_rights(connection, needs[role]) for role in named or needs}
        role = next((role for role, (lacks, _) in found.items() if not lacks), next(iter(found)))
        lacks, missing = found[role]
        return {
            "rabbitmq": ".".join(map(str, connection.version)),
            "queue_role": role,
            "queue_lacks": lacks,
            "queue_missing": missing,
            "queue_differs": await _first_mismatch(connection, topology),
        }
    finally:
        await connection.close()


def _needs(topology: Topology) -> dict[str, Rights]:
    """Return the rights of each role that can be probed. Fanout exchanges are left out: a probe would arrive in their
    queues."""
    direct = (topology.execution, topology.status, topology.completion)
    return {
        role: Rights(
            tuple(each for each in direct if each in rights.publish),
            tuple(each for each in rights.read if each != topology.started),
        )
        for role, rights in roles(topology).items()
    }


async def _first_mismatch(connection: Connection, topology: Topology) -> str:
    """Return the first queue whose arguments differ from the settings. Declaring an existing queue changes nothing; a
    user without permission to declare learns nothing."""
    for queue in topology.table(connection.version):
        if not await _refusal(connection, partial(_find_queue, queue.name)):
            code = await _refusal(connection, partial(_declare_queue, queue))
            if code in (REFUSED, DIFFERENT):
                return queue.name if code == DIFFERENT else ""
    return ""


async def _find_queue(queue: str, channel: Channel) -> None:
    await channel.declare_queue(queue, passive=True)


async def _declare_queue(queue: WorkQueue, channel: Channel) -> None:
    await channel.declare_queue(queue.name, queue.arguments)


async def _missing_rights(connection: Connection, rights: Rights) -> tuple[tuple[str, ...], int]:
    """Return the rights that are missing and how many queues and exchanges do not exist."""
    lacks: list[str] = []
    missing = 0
    for word, names, probe in (("read", rights.read, _try_read), ("write", rights.publish, _try_write)):
        for name in names:
            code = await _refusal(connection, partial(probe, name))
            lacks += [f"{word} {name}"] if code == REFUSED else []
            missing += code == MISSING
    return tuple(lacks), missing


async def _refusal(connection: Connection, probe: Probe) -> int:
    """Return the reply code with which the broker rejects a probe, 0 if it accepts it."""
    channel = await connection.channel()
    try:
        await probe(channel)
        await channel.close()
    except ChannelClosedError as closed:
        return closed.reply
    return 0


async def _try_read(queue: str, channel: Channel) -> None:
    declared = await channel.declare_queue(queue, passive=True)
    # Reading a message would count as one of its deliveries.
    if declared.message_count:
        return
    found = await channel.get(queue)
    if found is not None:
        channel.nack(found.tag, requeue=True)


async def _try_write(exchange: str, channel: Channel) -> None:
    await channel.confirm()
    try:
        await channel.publish(exchange, UNBOUND_KEY, b"{}")
    except PublishError:
        # Expected: no queue is bound to this key.
        return
