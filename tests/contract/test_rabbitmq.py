"""Contract tests of the RabbitMQ queue on a real broker, with its own client and with aio-pika."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from rune.adapters.rabbitmq.queue import RabbitQueue
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
