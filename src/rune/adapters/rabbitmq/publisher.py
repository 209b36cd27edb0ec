"""The publisher: messages to the broker, each confirmed, each under a deadline."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from rune.adapters.rabbitmq.amqp.channel import Channel, Outgoing
from rune.adapters.rabbitmq.amqp.client import ReconnectingConnection
from rune.adapters.rabbitmq.amqp.connection import Connection
from rune.adapters.rabbitmq.amqp.errors import (
    AmqpError,
    BrokerUnavailableError,
    ChannelClosedError,
    PublishError,
    UnroutableError,
)
from rune.adapters.rabbitmq.amqp.frames import JSON, MessageProperties
from rune.adapters.rabbitmq.topology import Topology, declare

RETRY_DELAY_S = 0.05  # s before a message that was not taken is tried again; doubles
MAX_RETRY_DELAY_S = 1.0


class Publisher:
    """Publishes over a connection of its own: an alarm at the broker stops who publishes, not who consumes.

    What could not be published within the deadline raises BrokerAway; it may have arrived all the same.
    """

    def __init__(
        self, url: str, topology: Topology, name: str, *, deadline: float, adopt: bool = False
    ) -> None:
        self._topology = topology
        self._deadline = deadline
        self._adopt = adopt
        self._declaring = asyncio.Lock()
        self._channel: Channel | None = None
        self._turn: list[tuple[Sequence[Outgoing], asyncio.Future[None]]] = []
        self.before: Callable[[], None] = lambda: None
        """Called once a turn when messages are about to go out: what must be at the broker before them goes now."""
        self.link = ReconnectingConnection(url, name, self._prepare, deadline=deadline)

    async def _prepare(self, connection: Connection) -> None:
        await declare(connection, self._topology)
        channel = await connection.channel()
        await channel.confirm()
        channel.on_close = lambda error: self.link.drop(error.message)
        self._channel = channel

    async def publish(self, messages: Sequence[Outgoing]) -> None:
        """Done when the broker has all of them."""
        if self._open() is not None:
            try:
                await self._in_turn(messages)
                return
            except (ChannelClosedError, PublishError, BrokerUnavailableError) as error:
                if error.code == "PUBLISH_DEADLINE":
                    raise
        await self._patiently(messages)

    def _open(self) -> Channel | None:
        """The channel, if it takes messages right now."""
        channel = self._channel
        if channel is None or channel.error is not None or not channel.is_clear or not self.link.is_up:
            return None
        return channel

    def _in_turn(self, messages: Sequence[Outgoing]) -> asyncio.Future[None]:
        """With everything else of this turn of the loop."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        if not self._turn:
            loop.call_soon(self._go)
        self._turn.append((messages, future))
        return future

    def _go(self) -> None:
        turn, self._turn = self._turn, []
        self.before()
        channel = self._open()
        for messages, future in turn:
            if future.done():  # whoever sent them has gone
                continue
            if channel is None:
                future.set_exception(BrokerUnavailableError("the broker takes no messages"))
                continue
            try:
                channel.publish_all(messages, future)
            except Exception as error:  # of these messages; the others are not to blame
                future.set_exception(error)

    async def _patiently(self, messages: Sequence[Outgoing]) -> None:
        """The same while the broker is away, or full, or a queue has vanished: until the deadline."""
        loop = asyncio.get_running_loop()
        until = loop.time() + self._deadline
        last: AmqpError = BrokerUnavailableError("the broker takes no messages")
        pause = RETRY_DELAY_S
        try:
            async with asyncio.timeout_at(until):
                while True:
                    try:
                        await self._once(messages, until)
                        return
                    except (ChannelClosedError, PublishError, BrokerUnavailableError) as error:
                        last = error
                        await asyncio.sleep(pause)
                        pause = min(2 * pause, MAX_RETRY_DELAY_S)
        except TimeoutError:
            reason = last.message if self.link.is_up else self.link.why
            text = f"not published within {self._deadline:g} s: {reason}"
            raise BrokerUnavailableError(text, code=last.code) from None

    async def _once(self, messages: Sequence[Outgoing], until: float) -> None:
        connection = await self.link.up(until - asyncio.get_running_loop().time())
        channel = self._channel
        assert channel is not None
        await channel.clear()
        self.before()
        try:
            await channel.publish_all(messages)
        except UnroutableError:
            await self._declare_again(connection, messages)
            await channel.publish_all(messages)

    async def _declare_again(self, connection: Connection, messages: Sequence[Outgoing]) -> None:
        """A queue has vanished, or nobody has declared it yet."""
        topology = self._topology
        if self._adopt:
            named = (
                topology.queue_of(key) for exchange, key, _, _ in messages if exchange == topology.execution
            )
            topology = topology.extended(name for name in named if name is not None)
        async with self._declaring:
            await declare(connection, topology)

    def post(self, exchange: str, routing_key: str, body: bytes, stamp: MessageProperties = JSON) -> bool:
        """Publish what may be lost, if that is possible right now."""
        channel = self._open()
        if channel is None:
            return False
        channel.post(exchange, routing_key, body, stamp)
        return True

    async def close(self) -> None:
        await self.link.close()
