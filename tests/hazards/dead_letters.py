"""Reading dead letters of RabbitMQ."""

from __future__ import annotations

import asyncio

from rune.adapters.rabbitmq.amqp.client import Message
from tests.support.rabbitmq_queues import VhostQueues

TIMEOUT_S = 60.0


async def next_dead_letter(url: str, execution: str = "") -> Message | None:
    """Wait for a dead letter, if given of an execution, and take it; None after a timeout."""
    place = VhostQueues(url, "")
    loop = asyncio.get_running_loop()
    deadline = loop.time() + TIMEOUT_S
    while loop.time() < deadline:
        found = await place.take("workflow.execution.dead")
        if found is not None and execution.encode() in found.body:
            return found
    return None
