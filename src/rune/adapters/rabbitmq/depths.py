"""Depths: how much waits in the queues of a topology. For how long, only the broker's own metrics say."""

from __future__ import annotations

import asyncio

from rune.adapters.rabbitmq.client import connect
from rune.adapters.rabbitmq.connection import Connection
from rune.adapters.rabbitmq.errors import BrokerAway, ChannelClosed
from rune.adapters.rabbitmq.topology import Topology
from rune.ports.queue import LANES
from rune.ports.telemetry import Depth


class Depths:
    """Looks over a connection of its own, which is kept from one look to the next."""

    def __init__(self, url: str, topology: Topology) -> None:
        self._url = url
        self._topology = topology
        self._connection: Connection | None = None
        self._looking = asyncio.Lock()

    async def read(self) -> list[Depth]:
        """One for each queue that this process knows of."""
        async with self._looking:
            kept = self._connection
            if kept is not None and kept.error is None:
                try:
                    return await self._look(kept)
                except BrokerAway:
                    pass  # it was gone already, and nobody had noticed
            self._connection = await connect(self._url, name="depths")
            return await self._look(self._connection)

    async def _look(self, connection: Connection) -> list[Depth]:
        channel = await connection.channel()
        found: list[Depth] = []
        for queue in self._topology.queues:
            waiting = 0
            for lane in LANES:
                try:
                    told = await channel.declare_queue(self._topology.lane(queue, lane), passive=True)
                    waiting += told.message_count or 0
                except ChannelClosed:  # not there, or not for us to see
                    channel = await connection.channel()
            found.append(Depth(queue=queue, waiting=waiting))
        await channel.close()
        return found

    async def close(self) -> None:
        if self._connection is not None:
            await self._connection.close()
