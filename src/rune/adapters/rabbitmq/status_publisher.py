"""Publishes node statuses, which may be lost, and completions, which are confirmed, to RabbitMQ.

It shares the connection that publishes work, so a status published before a token also arrives before it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from itertools import islice

from rune.adapters.rabbitmq.amqp.frames import MessageProperties
from rune.adapters.rabbitmq.legacy import LegacyExecutor
from rune.adapters.rabbitmq.publisher import Publisher
from rune.adapters.rabbitmq.topology import Topology

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
