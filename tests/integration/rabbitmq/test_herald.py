"""Statuses on their way: the newest are kept while the broker takes none, several may share a message, and their order
stays."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import aio_pika
import pytest

from rune.adapters.rabbitmq.status_publisher import (
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
from tests.integration.rabbitmq.helping import scenario
from tests.integration.rabbitmq.queues import place
from tests.integration.rabbitmq_cluster.plain import valid


class _Link:
    started = 0

    def start(self) -> None:
        self.started += 1


class _Publisher:
    """Takes messages if it is up."""

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


class _Nobody:
    async def close(self) -> None:
        pass


def _said(most: int, spoken: type[RabbitEventPublisher] = RabbitEventPublisher) -> list[bytes]:
    """What arrives of statuses 0 to 9, of which the last is said when the broker is back."""
    publisher = _Publisher()

    async def speak() -> None:
        herald = spoken(publisher, Topology(), _Nobody(), most)  # type: ignore[arg-type]
        for number in range(9):
            herald.publish_status(b"%d" % number)
        publisher.up = True
        herald.publish_status(b"9")
        async with asyncio.timeout(600 * RETRY_DELAY_S):
            await publisher.last.wait()
        await herald.close()

    asyncio.run(speak())
    assert publisher.link.started == 1, "nobody else may have asked for a connection yet"
    return publisher.taken


def test_what_was_kept_is_told_in_order_and_before_what_is_newer() -> None:
    everything = [b"%d" % number for number in range(10)]
    assert _said(most=100) == everything


def test_the_oldest_are_dropped() -> None:
    newest = [b"7", b"8", b"9"]
    assert _said(most=3) == newest


def test_in_batches_too_what_was_kept_is_told_in_order() -> None:
    assert _said(100, BatchingEventPublisher) == [b"[0,1,2,3,4,5,6,7,8,9]"]


def test_in_batches_too_the_oldest_are_dropped() -> None:
    assert _said(3, BatchingEventPublisher) == [b"[7,8,9]"]


def _batches(bodies: list[bytes], *, up: bool = True) -> list[int]:
    """How many statuses each message has, once all that must not wait have gone and before anybody has waited."""
    publisher = _Publisher()

    async def speak() -> list[int]:
        herald = BatchingEventPublisher(publisher, Topology(), _Nobody())  # type: ignore[arg-type]
        publisher.up = up
        for body in bodies:
            herald.publish_status(body)
        sizes = [len(json.loads(each)) for each in publisher.taken]
        publisher.up = True
        await herald.close()
        assert [each for body in publisher.taken for each in json.loads(body)] == [
            json.loads(body) for body in bodies
        ]
        assert max(map(len, publisher.taken)) <= MAX_BATCH_BYTES + 2
        return sizes

    return asyncio.run(speak())


def test_a_full_message_waits_for_nobody() -> None:
    few = [b"%d" % number for number in range(MAX_BATCH - 1)]
    assert _batches(few) == []
    assert _batches([*few, b"1", b"2"]) == [MAX_BATCH]


def test_a_long_message_waits_for_nobody() -> None:
    long = b'"%b"' % (b"x" * (MAX_BATCH_BYTES // 3))
    assert _batches([long, long]) == []
    assert _batches([long, long, long, long]) == [2, 1]


def test_what_a_broker_that_was_away_gets_is_cut_into_messages_too() -> None:
    assert _batches([b"%d" % number for number in range(5 * MAX_BATCH)], up=False) == []


def test_a_status_waits_for_others_only_for_a_moment() -> None:
    publisher = _Publisher()
    publisher.up = True

    async def speak() -> None:
        herald = BatchingEventPublisher(publisher, Topology(), _Nobody())  # type: ignore[arg-type]
        herald.publish_status(b"9")
        assert publisher.taken == []
        async with asyncio.timeout(20_000 * LINGER_S):
            await publisher.last.wait()
        await herald.close()

    asyncio.run(speak())
    assert publisher.taken == [b"[9]"]


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("true", "each"),
        ("False", "none"),
        ("0", "none"),
        ("each", "each"),
        ("batched", "batched"),
        ("none", "none"),
    ],
)
def test_how_statuses_are_told_is_a_setting(said: str, meant: str, tmp_path: Path) -> None:
    assert load_settings({"RUNE_STATUSES": said}, tmp_path).statuses == meant
    assert load_settings({}, tmp_path).statuses == "each"
    (tmp_path / "rune.toml").write_text("statuses = false\n")
    assert load_settings({}, tmp_path).statuses == "none"


def test_no_other_way_of_telling_is_taken(tmp_path: Path) -> None:
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


@pytest.mark.parametrize("spoken", [RabbitEventPublisher, BatchingEventPublisher])
@scenario
async def test_on_a_broker_statuses_come_before_the_tokens_that_are_sent_after_them(
    spoken: type[RabbitEventPublisher],
) -> None:
    async with place() as here:
        queue = here.queue()
        await queue.send("x", [Token(0)])
        herald = spoken(queue.publisher, queue.topology, _Nobody())  # type: ignore[arg-type]
        connection = await aio_pika.connect(here.url)
        async with connection:
            channel = await connection.channel()
            both = await channel.declare_queue(exclusive=True)
            await both.bind(queue.topology.status, queue.topology.status)
            await both.bind(queue.topology.execution, queue.topology.work[1])
            for number in range(250):
                herald.publish_status(_status(number))
                if number % 50 == 49:
                    await queue.send("x", [Token(number)])
            seen: list[int] = []
            tokens: list[int] = []
            async with both.iterator() as messages:
                async for message in messages:
                    told = json.loads(message.body)
                    if message.type == "NodeExecutionMessage":
                        tokens.append(told["token"]["node"])
                        assert seen[-1] == tokens[-1]
                    elif message.type == "NodeStatusBatch":
                        valid("node-status-batch", told)
                        seen += [int(each["node_id"][1:]) for each in told]
                    else:
                        valid("node-status-message", told)
                        seen.append(int(told["node_id"][1:]))
                    if len(tokens) == 5:
                        break
        await herald.close()
        assert seen == list(range(250))
        assert tokens == [49, 99, 149, 199, 249]
