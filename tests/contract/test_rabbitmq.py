"""Contract tests of the RabbitMQ queue on a real broker, with its own client and with aio-pika."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from rune.adapters.rabbitmq.amqp.frames import JSON
from rune.adapters.rabbitmq.dead_letters import DeadLetters
from rune.adapters.rabbitmq.queue import RabbitQueue
from rune.adapters.rabbitmq.topology import Kind
from rune.codec.messages import NO_CONTEXT, encode_hint
from rune.core.definition.model import DEFAULT_QUEUE
from rune.core.execution.token import Token
from tests.contract.suites.malformed_messages import MalformedMessageContract
from tests.contract.suites.queue import QueueContract
from tests.support.aio_pika_queue import AioPikaQueue
from tests.support.services.rabbitmq import broker


@pytest.fixture(autouse=True, scope="module")
def started() -> None:
    """Start the broker outside of the timeout of a test."""
    broker()


class TestQueue(QueueContract):
    @asynccontextmanager
    async def make_queue(self, folder: Path) -> AsyncIterator[RabbitQueue]:
        with broker().vhost() as vhost:
            queue = RabbitQueue(broker().url(vhost), consumer="one", prefetch=100)
            try:
                yield queue
            finally:
                await queue.close()


class TestQuorumQueue(QueueContract):
    @asynccontextmanager
    async def make_queue(self, folder: Path) -> AsyncIterator[RabbitQueue]:
        with broker().vhost() as vhost:
            queue = RabbitQueue(broker().url(vhost), consumer="one", prefetch=100, kind="quorum")
            try:
                yield queue
            finally:
                await queue.close()


class TestMalformedMessages(MalformedMessageContract):
    kind: Kind = "classic"

    @asynccontextmanager
    async def make_stores(self, folder: Path) -> AsyncIterator[tuple[RabbitQueue, DeadLetters]]:
        with broker().vhost() as vhost:
            queue = RabbitQueue(broker().url(vhost), consumer="one", prefetch=100, kind=self.kind)
            try:
                yield queue, DeadLetters(broker().url(vhost), queue.topology)
            finally:
                await queue.close()

    def valid_bodies(self) -> list[bytes]:
        tokens = (Token(3), Token(1, (0, 7)), Token(2, attempt=3, resumed=True, at=17))
        return [encode_hint(f"x{number}", token, NO_CONTEXT, 5) for number, token in enumerate(tokens)] + [
            b'{"workflow_id":"w","execution_id":"x1","current_node":"a","workflow_definition":{"nodes":[]},'
            b'"accumulated_context":{"$trigger":{"a":1}}}'
        ]

    def named_body(self) -> bytes:
        return b'{"execution_id":"x","token":{"node":"seven"}}'

    async def put(self, queue: RabbitQueue, bodies: Sequence[bytes]) -> None:
        key = queue.topology.lane(DEFAULT_QUEUE, "normal")
        await queue.publisher.publish([(queue.topology.execution, key, each, JSON) for each in bodies])

    async def count_unsettled(self, queue: RabbitQueue) -> int:
        return len(queue._tasks) + len(queue._held)


class TestMalformedMessagesOnQuorumQueue(TestMalformedMessages):
    kind: Kind = "quorum"


class TestAioPikaQueue(QueueContract):
    """Shows that the contract does not depend on the project's own client."""

    @asynccontextmanager
    async def make_queue(self, folder: Path) -> AsyncIterator[AioPikaQueue]:
        with broker().vhost() as vhost:
            queue = AioPikaQueue(broker().url(vhost), prefetch=100)
            try:
                yield queue
            finally:
                await queue.close()
