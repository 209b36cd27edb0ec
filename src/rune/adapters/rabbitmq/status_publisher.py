"""Reports: what statuses and completions are called on their way out.

The herald on RabbitMQ: statuses as they happen, completions for certain.

It shares the connection that publishes work: what is told before a token is sent is at the broker before it.
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
"""Statuses that are kept while the broker takes none."""
RETRY_DELAY_S = 0.1  # s before they are tried again
LINGER_S = 0.005  # s that a status may wait for others
MAX_BATCH = 100
MAX_BATCH_BYTES = 256 * 1024
"""How many statuses, and how much of them, travel in one message."""


class RabbitEventPublisher:
    """While the broker is away, or takes nothing, the newest statuses are kept and the oldest dropped."""

    def __init__(
        self, publisher: Publisher, topology: Topology, legacy: LegacyExecutor, most: int = MAX_PENDING
    ) -> None:
        self._legacy = legacy
        self._publisher = publisher
        self._topology = topology
        self._kept: deque[bytes] = deque(maxlen=most)
        self._again: asyncio.TimerHandle | None = None
        publisher.before = self._catch_up

    def publish_status(self, body: bytes) -> None:
        if self._kept or not self._post(body):
            self._kept.append(body)
            if self._again is None:
                self._publisher.link.start()
                self._again = asyncio.get_running_loop().call_later(RETRY_DELAY_S, self._catch_up)

    async def publish_completion(self, body: bytes) -> None:
        name = self._topology.completion
        await self._publisher.publish([(name, name, body, COMPLETION)])

    async def hand_over(self, body: bytes) -> None:
        await self._legacy.hand_over(body)

    def _post(self, body: bytes) -> bool:
        name = self._topology.status
        return self._publisher.post(name, name, body, STATUS)

    def _catch_up(self) -> None:
        """Everything that was kept, if the broker takes it; else later."""
        if self._again is not None:
            self._again.cancel()
            self._again = None
        while self._kept:
            if not self._post(self._kept[0]):
                self._again = asyncio.get_running_loop().call_later(RETRY_DELAY_S, self._catch_up)
                return
            self._kept.popleft()

    async def close(self) -> None:
        """What is still kept is dropped."""
        if self._again is not None:
            self._again.cancel()
        await self._legacy.close()


class BatchingEventPublisher(RabbitEventPublisher):
    """The same with several statuses in a message, for whoever reads such. They go out when work does, in front of it,
    or when there are many, or when they have waited for a few milliseconds."""

    def __init__(
        self, publisher: Publisher, topology: Topology, legacy: LegacyExecutor, most: int = MAX_PENDING
    ) -> None:
        super().__init__(publisher, topology, legacy, most)
        self._bytes = 0
        self._refused = False

    def publish_status(self, body: bytes) -> None:
        self._kept.append(body)
        self._bytes += len(body)
        full = len(self._kept) >= MAX_BATCH or self._bytes >= MAX_BATCH_BYTES
        if full and not self._refused:
            self._catch_up()
        elif self._again is None:
            self._publisher.link.start()
            self._again = asyncio.get_running_loop().call_later(LINGER_S, self._catch_up)

    def _catch_up(self) -> None:
        if self._again is not None:
            self._again.cancel()
            self._again = None
        name = self._topology.status
        self._refused = False
        while self._kept:
            some = self._some()
            if not self._publisher.post(name, name, b"[%b]" % b",".join(some), STATUSES):
                self._refused = True
                self._again = asyncio.get_running_loop().call_later(RETRY_DELAY_S, self._catch_up)
                return
            for _ in some:
                del self._kept[0]
        self._bytes = 0

    def _some(self) -> list[bytes]:
        """The oldest, as many as fit into a message; at least one."""
        some: list[bytes] = []
        size = 0
        for body in islice(self._kept, MAX_BATCH):
            size += len(body) + 1
            if some and size > MAX_BATCH_BYTES:
                break
            some.append(body)
        return some

    async def close(self) -> None:
        """What waits for others goes out, if the broker takes it."""
        self._catch_up()
        await super().close()
