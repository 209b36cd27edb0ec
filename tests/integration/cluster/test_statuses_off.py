"""With `RUNE_STATUSES=off` nothing is published for other systems, and nothing that waits for them accumulates."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import aio_pika
import pytest

from tests.support.backends import Backend, backends
from tests.support.waiting import until
from tests.support.workflows import edit, fail, of_type, split, workflow

EVENTS = ("workflow.node.status", "workflow.completion")
DONE = workflow("start>a a>b", a=edit(x=1), b=edit(y=2))
FANNED = workflow(
    "start>each each>one one>all",
    each=split("$trigger.xs"),
    one=edit(y="$item"),
    all=of_type("aggregator"),
)
FAILED = workflow("start>a a>b", a=edit(x=1), b=fail())
EXECUTIONS = [(DONE, {}), (FANNED, {"xs": [1, 2, 3]}), (FAILED, {})] * 5


async def _published(backend: Backend, statuses: str) -> tuple[list[str], list[int]]:
    """Run executions and wait until the outbox is empty; return the exchanges of the published messages, and the
    lengths of the queues for them."""
    async with backend.open(statuses=statuses) as engine:
        connection = await aio_pika.connect(backend.settings.queue)
        async with connection:
            channel = await connection.channel()
            copies = await channel.declare_queue(exclusive=True)
            for name in EVENTS:
                await channel.get_queue(name)  # the engine has declared it
                await copies.bind(name, name)
            runs = [await engine.start(document, payload) for document, payload in EXECUTIONS]
            for run in runs:
                await run.end()
            outbox: Any = engine.engine.backend.outbox

            async def is_empty() -> bool:
                return bool((await outbox.backlog()).rows == 0)

            await until(is_empty, "the outbox is empty")
            found = await _until_marked(channel, copies)
            lengths = [(await channel.declare_queue(name, passive=True)) for name in EVENTS]
            counts = [each.declaration_result.message_count or 0 for each in lengths]
    return found, counts


async def _until_marked(channel: Any, copies: Any) -> list[str]:
    """Publish a last message behind all others, and return the exchanges of those before it."""
    for name in EVENTS:
        exchange = await channel.get_exchange(name, ensure=False)
        await exchange.publish(aio_pika.Message(b'"last"'), routing_key=name)
    found: list[str] = []
    last = 0
    async with asyncio.timeout(60), copies.iterator(no_ack=True) as messages:
        async for each in messages:
            if json.loads(each.body) != "last":
                found.append(each.exchange)
                continue
            last += 1
            if last == len(EVENTS):
                break
    return found


@backends("rabbitmq")
@pytest.mark.parametrize(
    ("statuses", "expected"), [("off", set()), ("none", {"workflow.completion"}), ("each", set(EVENTS))]
)
def test_statuses_setting_decides_what_is_published(
    backend: Backend, statuses: str, expected: set[str]
) -> None:
    found, lengths = asyncio.run(_published(backend, statuses))

    assert set(found) == expected
    # The two last messages are of this test.
    assert [length - 1 > 0 for length in lengths] == [each in expected for each in EVENTS]
