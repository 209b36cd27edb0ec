"""API processes consume status and completion messages of RabbitMQ."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import aio_pika
import pytest
from msgspec.structs import replace

from tests.support.api_server import HELLO, RunningServer, run
from tests.support.backends import stores
from tests.support.services.rabbitmq import broker
from tests.support.waiting import until

QUEUES = ("workflow.node.status", "workflow.completion")


async def depths(channel: Any) -> dict[str, tuple[int, int]]:
    """Return the numbers of ready messages and of consumers of both queues."""
    found = {}
    for name in QUEUES:
        declared = await channel.declare_queue(name, passive=True)
        result = declared.declaration_result
        found[name] = (result.message_count, result.consumer_count)
    return found


@pytest.mark.parametrize("statuses", ["each", "batched"])
def test_statuses_and_completions_do_not_accumulate(statuses: Any, tmp_path: Path) -> None:
    settings = replace(stores(tmp_path), statuses=statuses, grace=1.0)

    async def left(url: str) -> dict[str, tuple[int, int]]:
        async with await aio_pika.connect(url) as connection:
            return await depths(await connection.channel())

    with broker().vhost() as vhost:
        url = broker().url(vhost)

        async def work(server: RunningServer) -> None:
            async with await aio_pika.connect(url) as connection:
                channel = await connection.channel()

                async def consumed() -> bool:
                    return all(consumers for _, consumers in (await depths(channel)).values())

                await until(consumed, "both queues have a consumer", 60.0)
                for name in QUEUES:
                    exchange = await channel.get_exchange(name, ensure=False)
                    for body in (b'{"execution_id":"x\xff1"}', b"[[[", b"[1]", b""):
                        await exchange.publish(aio_pika.Message(body), routing_key=name)
                await server.deploy(HELLO)
                for _ in range(5):
                    await server.ended("hello", {"name": "x"})

                async def empty() -> bool:
                    return all(not ready for ready, _ in (await depths(channel)).values())

                await until(empty, "both queues are empty", 60.0)

        run(tmp_path, work, on=replace(settings, queue=url))
        # Deliveries that were not acknowledged would be back in their queue.
        assert {name: ready for name, (ready, _) in asyncio.run(left(url)).items()} == dict.fromkeys(
            QUEUES, 0
        )
