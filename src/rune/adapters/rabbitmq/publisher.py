"""Publishes messages with confirms, each within a deadline."""

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

MIN_RETRY_DELAY_S = 0.05
MAX_RETRY_DELAY_S = 1.0


class Publisher:
    """Publishes over its own connection, because an alarm of the broker blocks connections that publish.

    Raises BrokerUnavailableError for messages without a confirm within the deadline; they may still have arrived.
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
        """Called once per batch before its messages are published, to publish what must precede them."""
        self.link = ReconnectingConnection(url, name, self._prepare, deadline=deadline)

    async def _prepare(self, connection: Connection) -> None:
        await declare(connection, self._topology)
        channel = await connection.channel()
        await channel.confirm()
        channel.on_close = lambda error: self.link.drop(error.message)
        self._channel = channel

    async def publish(self, messages: Sequence[Outgoing]) -> None:
        """Publish messages; returns when the broker has confirmed all of them."""
        if self._open_channel() is not None:
            try:
                await self._in_turn(messages)
                return
            except (ChannelClosedError, PublishError, BrokerUnavailableError) as error:
                if error.code == "PUBLISH_DEADLINE":
                    raise
        await self._publish_with_retry(messages)

    def _open_channel(self) -> Channel | None:
        """Return the channel if it accepts messages now."""
        channel = self._channel
        if channel is None or channel.error is not None or not channel.is_clear or not self.link.is_up:
            return None
        return channel

    def _in_turn(self, messages: Sequence[Outgoing]) -> asyncio.Future[None]:
        """Publish messages together with all others of this event loop turn."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        if not self._turn:
            loop.call_soon(self._publish_turn)
        self._turn.append((messages, future))
        return future

    def _publish_turn(self) -> None:
        turn, self._turn = self._turn, []
        self.before()
        channel = self._open_channel()
        for messages, future in turn:
            # The caller was cancelled.
            if future.done():
                continue
            if channel is None:
                future.set_exception(BrokerUnavailableError("the broker accepts no messages"))
                continue
            try:
                channel.publish_all(messages, future)
            except Exception as error:
                # These messages cannot be encoded; publish the others.
                future.set_exception(error)

    async def _publish_with_retry(self, messages: Sequence[Outgoing]) -> None:
        """Retry until the deadline while the broker is unavailable or full, or a queue is missing."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._deadline
        last: AmqpError = BrokerUnavailableError("the broker accepts no messages")
        delay = MIN_RETRY_DELAY_S
        try:
            async with asyncio.timeout_at(deadline):
                while True:
                    try:
                        await self._publish_once(messages, deadline)
                        return
                    except (ChannelClosedError, PublishError, BrokerUnavailableError) as error:
                        last = error
                        await asyncio.sleep(delay)
                        delay = min(2 * delay, MAX_RETRY_DELAY_S)
        except TimeoutError:
            reason = last.message if self.link.is_up else self.link.why
            text = f"not published within {self._deadline:g} s: {reason}"
            raise BrokerUnavailableError(text, code=last.code) from None

    async def _publish_once(self, messages: Sequence[Outgoing], deadline: float) -> None:
        connection = await self.link.up(deadline - asyncio.get_running_loop().time())
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
        """Declare queues that were deleted or not declared yet."""
        topology = self._topology
        if self._adopt:
            named = (
                topology.queue_of(key) for exchange, key, _, _ in messages if exchange == topology.execution
            )
            topology = topology.extended(name for name in named if name is not None)
        async with self._declaring:
            await declare(connection, topology)

    def post(self, exchange: str, routing_key: str, body: bytes, stamp: MessageProperties = JSON) -> bool:
        """Publish a message without a confirm, and return False if the broker accepts none now."""
        channel = self._open_channel()
        if channel is None:
            return False
        channel.post(exchange, routing_key, body, stamp)
        return True

    async def close(self) -> None:
        await self.link.close()
