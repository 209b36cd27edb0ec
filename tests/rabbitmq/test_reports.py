"""Statuses and completions, from who tells them to who listens."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from rune.adapters.rabbitmq.reports import Listener, Reports
from rune.core.token import Token
from rune.wire.rabbit import NodeStatusMessage, decode_status, moment
from tests.rabbitmq.helping import scenario, until
from tests.rabbitmq.queues import place


def status(number: int) -> NodeStatusMessage:
    return NodeStatusMessage(
        workflow_id="w", execution_id="e", node_id=f"n{number}", status="success",
        output=msgspec.Raw(b'{"a":1}'), executed_at=moment(number), duration_ms=number,
    )  # fmt: skip


@scenario
async def test_statuses_are_heard_in_order_and_in_batches() -> None:
    async with place() as here:
        queue = here.queue()
        await queue.send("x", [Token(0)])
        telling = Reports(queue.publisher, queue.topology)
        for number in range(1000):
            assert telling.status(status(number))
        batches: list[int] = []
        heard: list[str] = []

        async def handle(bodies: Sequence[bytes]) -> None:
            batches.append(len(bodies))
            heard.extend(decode_status(each).node_id for each in bodies)

        listener = Listener(here.url, queue.topology, queue.topology.status, handle)
        listener.start()
        await until(lambda: len(heard) >= 1000)
        assert heard == [f"n{number}" for number in range(1000)]
        assert max(batches) == 100
        await listener.close()
        assert await here.waiting(queue.topology.status) == 0


@scenario
async def test_a_status_is_left_out_while_nobody_takes_it() -> None:
    async with place() as here:
        queue = here.queue(url="amqp://127.0.0.1:1/")
        assert Reports(queue.publisher, queue.topology).status(status(1)) is False


@scenario
async def test_a_completion_that_could_not_be_handled_comes_again() -> None:
    async with place() as here:
        queue = here.queue()
        await Reports(queue.publisher, queue.topology).completion(b'{"execution_id": "e"}')
        heard: list[bytes] = []
        done = asyncio.Event()

        async def handle(bodies: Sequence[bytes]) -> None:
            heard.extend(bodies)
            if len(heard) == 1:
                raise RuntimeError("not now")
            done.set()

        listener = Listener(here.url, queue.topology, queue.topology.completion, handle)
        listener.start()
        await done.wait()
        await listener.close()
        assert heard == [b'{"execution_id": "e"}'] * 2
        assert await here.waiting(queue.topology.completion) == 0
