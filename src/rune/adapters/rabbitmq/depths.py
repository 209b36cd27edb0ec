"""Depths: how much waits in the queues of a topology. A broker does not say for how long."""

from __future__ import annotations

from rune.adapters.rabbitmq.client import connect
from rune.adapters.rabbitmq.errors import ChannelClosed
from rune.adapters.rabbitmq.topology import Topology
from rune.ports.queue import LANES
from rune.ports.telemetry import Depth


async def read_depths(url: str, topology: Topology) -> list[Depth]:
    """One for each queue that this process knows of, over a connection of its own."""
    connection = await connect(url, name="depths")
    found: list[Depth] = []
    try:
        channel = await connection.channel()
        for queue in topology.queues:
            waiting = 0
            for lane in LANES:
                try:
                    told = await channel.declare_queue(topology.lane(queue, lane), passive=True)
                    waiting += told.message_count or 0
                except ChannelClosed:  # not there, or not for us to see
                    channel = await connection.channel()
            found.append(Depth(queue=queue, waiting=waiting))
    finally:
        await connection.close()
    return found
