"""Publishers of node statuses: buffering, batching and order."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import aio_pika
import pytest

from rune.adapters.rabbitmq.publisher import (
    LINGER_S,
    MAX_BATCH,
    MAX_BATCH_BYTES,
    RETRY_DELAY_S,
    BatchingEventPublisher,
    RabbitEventPublisher,
)
from rune.adapters.rabbitmq.topology import Topology
from rune.codec.messages import NodeStatusMessage, encode_message, moment
from rune.core.execution.token import Token
from rune.settings import SettingsError, load_settings
from tests.support.amqp_client import check_schema
from tests.support.async_test import async_test
from tests.support.rabbitmq_queues import vhost_queues


class _Link:
    started = 0

    def start(self) -> None:
        self.started += 1


class _Publisher:
    """Accepts messages while it is up."""

    def __init__(self) -> None:
        self.up = False
        self.taken: list[bytes] = []
        self.last = asyncio.Event()
        self.link = _Link()

    def post(self, exchange: str, routing_key: str, body: bytes, stamp: Any) -> bool:
        if self.up:
            self.taken.append(body)
            if b"9" in body:
                self.last.set()
        return self.up


class _NoConnection:
    async def close(self) -> None:
        pass


def _published(limit: int, publisher_type: type[RabbitEventPublisher] = RabbitEventPublisher) -> list[bytes]:
    """Publish statuses 0 to 9, the last one when the broker is up again; return the messages."""
    publisher = _Publisher()

    async def publish() -> None:
        statuses = publisher_type(publisher, Topology(), _NoConnection(), limit)  # type: ignore[arg-type]
        for number in range(9):
            statuses.publish_status(b"%d" % number)
        publisher.up = True
        statuses.publish_status(b"9")
        async with asyncio.timeout(600 * RETRY_DELAY_S):
            await publisher.last.wait()
        await statuses.close()

    asyncio.run(publish())
    assert publisher.link.started == 1, "the publisher must start the connection itself"
    return publisher.taken


def test_buffered_statuses_are_published_in_order() -> None:
    everything = [b"%d" % number for number in range(10)]
    assert _published(limit=100) == everything


def test_full_buffer_drops_oldest() -> None:
    newest = [b"7", b"8", b"9"]
    assert _published(limit=3) == newest


def test_batched_buffered_statuses_are_published_in_order() -> None:
    assert _published(100, BatchingEventPublisher) == [b"[0,1,2,3,4,5,6,7,8,9]"]


def test_batched_full_buffer_drops_oldest() -> None:
    assert _published(3, BatchingEventPublisher) == [b"[7,8,9]"]


def _batches(bodies: list[bytes], *, up: bool = True) -> list[int]:
    """Return the sizes of the batches that are published without waiting."""
    publisher = _Publisher()

    async def publish() -> list[int]:
        statuses = BatchingEventPublisher(publisher, Topology(), _NoConnection())  # type: ignore[arg-type]
        publisher.up = up
        for body in bodies:
            statuses.publish_status(body)
        sizes = [len(json.loads(each)) for each in publisher.taken]
        publisher.up = True
        await statuses.close()
        assert [each for body in publisher.taken for each in json.loads(body)] == [
            json.loads(body) for body in bodies
        ]
        assert max(map(len, publisher.taken)) <= MAX_BATCH_BYTES + 2
        return sizes

    return asyncio.run(publish())


def test_batch_with_max_count_is_published_at_once() -> None:
    few = [b"%d" % number for number in range(MAX_BATCH - 1)]
    assert _batches(few) == []
    assert _batches([*few, b"1", b"2"]) == [MAX_BATCH]


def test_batch_with_max_bytes_is_published_at_once() -> None:
    long = b'"%b"' % (b"x" * (MAX_BATCH_BYTES // 3))
    assert _batches([long, long]) == []
    assert _batches([long, long, long, long]) == [2, 1]


def test_buffered_statuses_are_split_into_batches() -> None:
    assert _batches([b"%d" % number for number in range(5 * MAX_BATCH)], up=False) == []


def test_incomplete_batch_is_published_after_linger() -> None:
    publisher = _Publisher()
    publisher.up = True

    async def publish() -> None:
        statuses = BatchingEventPublisher(publisher, Topology(), _NoConnection())  # type: ignore[arg-type]
        statuses.publish_status(b"9")
        assert publisher.taken == []
        async with asyncio.timeout(20_000 * LINGER_S):
            await publisher.last.wait()
        await statuses.close()

    asyncio.run(publish())
    assert publisher.taken == [b"[9]"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("true", "each"),
        ("False", "none"),
        ("0", "none"),
        ("each", "each"),
        ("batched", "batched"),
        ("none", "none"),
        ("off", "off"),
    ],
)
def test_statuses_setting_selects_publisher(text: str, expected: str, tmp_path: Path) -> None:
    assert load_settings({"RUNE_STATUSES": text}, tmp_path).statuses == expected
    assert load_settings({}, tmp_path).statuses == "each"
    (tmp_path / "rune.toml").write_text("statuses = false\n")
    assert load_settings({}, tmp_path).statuses == "none"


def test_unknown_statuses_setting_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="statuses"):
        load_settings({"RUNE_STATUSES": "some"}, tmp_path)


def _status(number: int) -> bytes:
    return encode_message(
        NodeStatusMessage(
            workflow_id="w",
            execution_id="e",
            node_id=f"n{number}",
            status="success",
            executed_at=moment(number),
            duration_ms=number,
        )
    )


@pytest.mark.parametrize("publisher_type", [RabbitEventPublisher, BatchingEventPublisher])
@async_test
async def test_statuses_arrive_before_later_tokens(
    publisher_type: type[RabbitEventPublisher],
) -> None:
    async with vhost_queues() as vhost:
        queue = vhost.queue()
        await queue.send("x", [Token(0)])
        statuses = publisher_type(queue.publisher, queue.topology, _NoConnection())  # type: ignore[arg-type]
        connection = await aio_pika.connect(vhost.url)
        async with connection:
            channel = await connection.channel()
            both = await channel.declare_queue(exclusive=True)
            await both.bind(queue.topology.status, queue.topology.status)
            await both.bind(queue.topology.execution, queue.topology.work[1])
            for number in range(250):
                statuses.publish_status(_status(number))
                if number % 50 == 49:
                    await queue.send("x", [Token(number)])
            seen: list[int] = []
            tokens: list[int] = []
            async with both.iterator() as messages:
                async for message in messages:
                    content = json.loads(message.body)
                    if message.type == "NodeExecutionMessage":
                        tokens.append(content["token"]["node"])
                        assert seen[-1] == tokens[-1]
                    elif message.type == "NodeStatusBatch":
                        check_schema("node-status-batch", content)
                        seen += [int(each["node_id"][1:]) for each in content]
                    else:
                        check_schema("node-status-message", content)
                        seen.append(int(content["node_id"][1:]))
                    if len(tokens) == 5:
                        break
        await statuses.close()
        assert seen == list(range(250))
        assert tokens == [49, 99, 149, 199, 249]
