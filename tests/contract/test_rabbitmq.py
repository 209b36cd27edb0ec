"""The queue on RabbitMQ keeps the contract, on a real broker, and so does the same port over another client."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from rune.adapters.rabbitmq.queue import RabbitQueue
from tests.contract.suites.queue import QueueContract
from tests.integration.rabbitmq.aio_pika_queue import AioPikaQueue
from tests.support.services.rabbitmq import broker


@pytest.fixture(autouse=True, scope="module")
def started() -> None:
    """Before the first test has a deadline."""
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


class TestOverAnotherClient(QueueContract):
    """Shows that the contract asks nothing that only our client could give."""

    @asynccontextmanager
    async def make_queue(self, folder: Path) -> AsyncIterator[AioPikaQueue]:
        with broker().vhost() as vhost:
            queue = AioPikaQueue(broker().url(vhost), prefetch=100)
            try:
                yield queue
            finally:
                await queue.close()
