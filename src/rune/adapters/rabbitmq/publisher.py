"""Publishes messages to RabbitMQ, each within a deadline: tokens, node statuses and completions.

Tokens and completions are confirmed, statuses may be lost. Statuses share the connection that publishes work, so a
status published before a token also arrives before it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from rune.adapters.rabbitmq.amqp.channel import Channel, Outgoing, transfer_s
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

if TYPE_CHECKING:
    from rune.adapters.rabbitmq.legacy import LegacyExecutor

MIN_RETRY_DELAY_S = 0.05
MAX_RETRY_DELAY_S = 1.0

STATUS = MessageProperties(persistent=False, type="NodeStatusMessage", app_id="rune")
STATUSES = MessageProperties(persistent=False, type="NodeStatusBatch", app_id="rune")
COMPLETION = MessageProperties(type="CompletionMessage", app_id="rune")

MAX_PENDING = 10_000
"""Statuses that are buffered while the broker accepts none."""

RETRY_DELAY_S = 0.1
LINGER_S = 0.005
"""How long a status may wait for others to share its message."""

MAX_BATCH = 100
MAX_BATCH_BYTES = 256 * 1024


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
        allowed = self._deadline + sum(transfer_s(len(body)) for _, _, body, _ in messages)
        deadline = loop.time() + allowed
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
            text = f"RabbitMQ: not published within {allowed:g} s: {reason}"
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


class RabbitEventPublisher:
    """Publishes each status as one message. While the broker accepts none, the newest are buffered and the oldest
    dropped."""

    def __init__(
        self, publisher: Publisher, topology: Topology, legacy: LegacyExecutor, most: int = MAX_PENDING
    ) -> None:
        self._legacy = legacy
        self._publisher = publisher
        self._topology = topology
        self._pending: deque[bytes] = deque(maxlen=most)
        self._retry_timer: asyncio.TimerHandle | None = None
        publisher.before = self._catch_up

    def publish_status(self, body: bytes) -> None:
        if self._pending or not self._post(body):
            self._pending.append(body)
            if self._retry_timer is None:
                self._publisher.link.start()
                self._retry_timer = asyncio.get_running_loop().call_later(RETRY_DELAY_S, self._catch_up)

    async def publish_completion(self, body: bytes) -> None:
        name = self._topology.completion
        await self._publisher.publish([(name, name, body, COMPLETION)])

    async def hand_over(self, body: bytes) -> None:
        await self._legacy.hand_over(body)

    def _post(self, body: bytes) -> bool:
        name = self._topology.status
        return self._publisher.post(name, name, body, STATUS)

    def _catch_up(self) -> None:
        """Publish all buffered statuses; if the broker accepts none, try again later."""
        if self._retry_timer is not None:
            self._retry_timer.cancel()
            self._retry_timer = None
        while self._pending:
            if not self._post(self._pending[0]):
                self._retry_timer = asyncio.get_running_loop().call_later(RETRY_DELAY_S, self._catch_up)
                return
            self._pending.popleft()

    async def close(self) -> None:
        """Drop the buffered statuses."""
        if self._retry_timer is not None:
            self._retry_timer.cancel()
        await self._legacy.close()


class BatchingEventPublisher(RabbitEventPublisher):
    """Publishes several statuses in one message, for subscribers that support it. They are published before the next
    token, when there are many, or after LINGER_S."""

    def __init__(
        self, publisher: Publisher, topology: Topology, legacy: LegacyExecutor, most: int = MAX_PENDING
    ) -> None:
        super().__init__(publisher, topology, legacy, most)
        self._bytes = 0
        self._refused = False

    def publish_status(self, body: bytes) -> None:
        self._pending.append(body)
        self._bytes += len(body)
        full = len(self._pending) >= MAX_BATCH or self._bytes >= MAX_BATCH_BYTES
        if full and not self._refused:
            self._catch_up()
        elif self._retry_timer is None:
            self._publisher.link.start()
            self._retry_timer = asyncio.get_running_loop().call_later(LINGER_S, self._catch_up)

    def _catch_up(self) -> None:
        if self._retry_timer is not None:
            self._retry_timer.cancel()
            self._retry_timer = None
        name = self._topology.status
        self._refused = False
        while self._pending:
            batch = self._next_batch()
            if not self._publisher.post(name, name, b"[%b]" % b",".join(batch), STATUSES):
                self._refused = True
                self._retry_timer = asyncio.get_running_loop().call_later(RETRY_DELAY_S, self._catch_up)
                return
            for _ in batch:
                del self._pending[0]
        self._bytes = 0

    def _next_batch(self) -> list[bytes]:
        """Return the oldest statuses that fit into one message, at least one."""
        batch: list[bytes] = []
        size = 0
        for body in islice(self._pending, MAX_BATCH):
            size += len(body) + 1
            if batch and size > MAX_BATCH_BYTES:
                break
            batch.append(body)
        return batch

    async def close(self) -> None:
        """Publish the buffered statuses if the broker accepts them."""
        self._catch_up()
        await super().close()
