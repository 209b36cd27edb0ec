"""Frame encoding compared with pamqp; acks and confirms."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pamqp import body, commands, frame, header

from rune.adapters.rabbitmq.amqp.channel import Batch, PendingAcks, PublisherConfirms
from rune.adapters.rabbitmq.amqp.errors import AmqpError, NackedError, UnroutableError
from rune.adapters.rabbitmq.amqp.frames import (
    MessageProperties,
    ack_command,
    content,
    nack_command,
    publish_command,
    read_deliver,
)


@given(st.binary(max_size=300), st.integers(1, 65535), st.integers(0, 2**40), st.sampled_from([64, 4088]))
@settings(deadline=None)
def test_content_equals_pamqp(text: bytes, channel: int, number: int, room: int) -> None:
    stamp = MessageProperties(
        headers={"a": 1, "b": "text"}, priority=7, message_id="m", type="t", app_id="rune"
    )
    properties = commands.Basic.Properties(
        content_type="application/json", headers={"a": 1, "b": "text"}, delivery_mode=2, priority=7,
        correlation_id=str(number), message_id="m", message_type="t", app_id="rune",
    )  # fmt: skip
    expected = frame.marshal(header.ContentHeader(0, len(text), properties), channel)
    for start in range(0, len(text), room):
        expected += frame.marshal(body.ContentBody(text[start : start + room]), channel)

    assert content(channel, stamp.properties(number), text, room) == expected


def test_timestamped_properties_equal_pamqp() -> None:
    stamp = MessageProperties(message_id="m", type="t", app_id="rune", timed=True)
    before = int(time.time())
    written = [stamp.properties(number) for number in (1, 2)]
    after = int(time.time())

    for number, each in enumerate(written, 1):
        possible = [
            commands.Basic.Properties(
                content_type="application/json", delivery_mode=2, correlation_id=str(number), message_id="m",
                timestamp=datetime.fromtimestamp(second, UTC), message_type="t", app_id="rune",
            )
            for second in range(before, after + 1)
        ]  # fmt: skip
        assert each in [known.marshal() for known in possible]


@given(st.integers(1, 65535), st.integers(1, 2**62), st.booleans())
@settings(deadline=None)
def test_ack_and_nack_equal_pamqp(channel: int, tag: int, flag: bool) -> None:
    assert ack_command(channel, tag, multiple=flag) == frame.marshal(commands.Basic.Ack(tag, flag), channel)
    assert nack_command(channel, tag, requeue=flag) == frame.marshal(
        commands.Basic.Nack(tag, False, flag), channel
    )


def test_publish_command_sets_mandatory() -> None:
    found: Any = frame.unmarshal(publish_command(3, "exchange", "key", mandatory=True))[2]

    assert (found.exchange, found.routing_key, found.mandatory) == ("exchange", "key", True)


NAME = st.text("abcXYZ019._-", max_size=40)


@given(st.text(max_size=20), st.integers(0, 2**62), st.booleans(), NAME, st.text(max_size=30))
@settings(deadline=None)
def test_read_deliver_parses_pamqp_frames(
    tag: str, number: int, again: bool, exchange: str, key: str
) -> None:
    data = frame.marshal(commands.Basic.Deliver(tag, number, again, exchange, key), 1)

    consumer, message = read_deliver(data, 11, len(data) - 1)

    assert consumer.decode() == tag
    assert (message.tag, message.redelivered) == (number, again)
    assert (message.exchange, message.routing_key) == (exchange, key)


@given(st.data())
@settings(deadline=None)
def test_pending_acks_settle_exactly_acked_tags(data: st.DataObject) -> None:
    acks, at_broker, held, acked, expected = (
        PendingAcks(1),
        dict[int, None](),
        list[int](),
        set[int](),
        set[int](),
    )
    delivered = 0
    for _ in range(data.draw(st.integers(1, 60))):
        act = data.draw(st.sampled_from(["deliver", "deliver", "ack", "ack", "nack", "flush"]))
        if act == "deliver":
            delivered += 1
            at_broker[delivered] = None
            held.append(delivered)
            acks.delivered(delivered)
        elif act == "flush":
            _settle(acks.frames(), at_broker, acked)
        elif held:
            tag = held.pop(data.draw(st.integers(0, len(held) - 1)))
            if act == "ack":
                expected.add(tag)
                acks.add(tag)
                assert acks.add(tag) is False, "a second ack is ignored"
            elif acks.other(tag):
                del at_broker[tag]  # sent at once, before the pending acks
    _settle(acks.frames(), at_broker, acked)

    assert acked == expected
    assert sorted(at_broker) == sorted(held)


def _settle(frames: bytes, at_broker: dict[int, None], acked: set[int]) -> None:
    """Apply acks as RabbitMQ does: an unknown tag closes the channel."""
    while frames:
        size, _, found = frame.unmarshal(frames)
        frames = frames[size:]
        assert isinstance(found, commands.Basic.Ack)
        assert found.delivery_tag in at_broker, "unknown delivery tag"
        tag, multiple = found.delivery_tag, found.multiple
        done = [each for each in at_broker if each == tag or (multiple and each < tag)]
        for each in done:
            del at_broker[each]
            acked.add(each)


def test_adjacent_acks_are_one_frame() -> None:
    acks = PendingAcks(1)
    for tag in range(1, 101):
        acks.delivered(tag)
    for tag in range(50, 0, -1):
        acks.add(tag)

    assert acks.frames() == ack_command(1, 50, multiple=True)
    assert acks.frames() == b""


@given(st.data())
@settings(deadline=None)
def test_confirms_settle_in_any_order(data: st.DataObject) -> None:
    async def run() -> None:
        loop = asyncio.get_running_loop()
        confirms, batches = PublisherConfirms(), list[Batch]()
        for size in data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=10)):
            batch = Batch(loop.create_future(), size)
            batches.append(batch)
            for _ in range(size):
                confirms.next(batch)
        open_ = set(range(1, confirms.last + 1))
        while open_:
            tag = data.draw(st.sampled_from(sorted(open_)))
            multiple = data.draw(st.booleans())
            confirms.settle(tag, multiple=multiple, taken=True)
            open_ -= {each for each in open_ if each <= tag} if multiple else {tag}
        assert len(confirms) == 0
        for batch in batches:
            assert batch.future.done()
            await batch.future

    asyncio.run(run())


def test_nacked_message_fails_only_its_batch() -> None:
    async def run() -> None:
        loop = asyncio.get_running_loop()
        confirms = PublisherConfirms()
        batches = [Batch(loop.create_future(), 2) for _ in range(3)]
        for batch in batches:
            for _ in range(2):
                confirms.next(batch)
        assert confirms.returned("3", UnroutableError("no way"))
        confirms.settle(1, multiple=False, taken=False)
        confirms.settle(6, multiple=True, taken=True)
        errors: list[type[AmqpError] | None] = []
        for batch in batches:
            found = batch.future.exception()
            errors.append(None if found is None else type(found))  # type: ignore[arg-type]
        assert errors == [NackedError, UnroutableError, None]

    asyncio.run(run())


@pytest.mark.parametrize("number", ["", "abc", "9", "-1", "²"])
def test_unknown_return_is_ignored(number: str) -> None:
    assert PublisherConfirms().returned(number, UnroutableError("")) is False
