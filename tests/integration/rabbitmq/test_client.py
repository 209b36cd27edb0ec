"""AMQP client against a real broker."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest

from rune.adapters.rabbitmq.amqp.client import (
    BrokerUnavailableError,
    ChannelClosedError,
    ConnectionRefusedByBrokerError,
    MessageProperties,
    NackedError,
    UnroutableError,
    connect,
)
from tests.integration.rabbitmq.amqp_helpers import RecordingConsumer, open_channel, open_connection
from tests.support.async_test import async_test
from tests.support.services.rabbitmq import broker


@async_test
async def test_message_round_trips() -> None:
    async with open_channel() as channel:
        consumer = RecordingConsumer()
        await channel.consume("q", consumer.on_message, "c")
        stamp = MessageProperties(headers={"reason": "test", "n": 3}, message_id="m1", type="t")
        await channel.publish("", "q", b'{"a": 1}', stamp)
        (message,) = await consumer.wait_for_messages(1)

        assert message.body == b'{"a": 1}'
        assert (message.routing_key, message.redelivered) == ("q", False)
        assert message.headers == {"reason": "test", "n": 3}
        assert (message.properties.message_id, message.properties.delivery_mode) == ("m1", 2)


@pytest.mark.parametrize("size", [0, 1, 4087, 4088, 4089, 1_000_003])
@async_test
async def test_body_is_split_into_small_frames(size: int) -> None:
    async with open_channel("?frame_max=4096") as channel:
        consumer = RecordingConsumer()
        await channel.consume("q", consumer.on_message, "c")
        body = bytes(range(256)) * (size // 256 + 1)
        await channel.publish("", "q", body[:size])
        (message,) = await consumer.wait_for_messages(1)
        assert message.body == body[:size]


@async_test
async def test_many_pending_confirms_are_settled() -> None:
    async with open_channel() as channel:
        await asyncio.gather(*(channel.publish("", "q", b"%d" % each) for each in range(5000)))
        found = await channel.declare_queue("q", passive=True)
        assert found.message_count == 5000
        consumer = RecordingConsumer()
        await channel.consume("q", consumer.on_message, "c")
        messages = await consumer.wait_for_messages(5000)
        assert [int(each.body) for each in messages] == list(range(5000))
        for message in messages:
            channel.ack(message.tag)
    assert channel.confirms.last == 5000


@async_test
async def test_unroutable_message_fails_alone() -> None:
    async with open_channel() as channel:
        keys = ["q", "nowhere", "q", "q", "elsewhere"]
        found = await asyncio.gather(
            *(channel.publish("", key, b"x") for key in keys), return_exceptions=True
        )
        assert [type(each) for each in found] == [
            type(None),
            UnroutableError,
            type(None),
            type(None),
            UnroutableError,
        ]
        assert "nowhere" in str(found[1])


@async_test
async def test_publish_to_full_queue_is_nacked() -> None:
    async with open_channel() as channel:
        await channel.declare_queue("small", {"x-max-length": 1, "x-overflow": "reject-publish"})
        await channel.publish("", "small", b"1")
        with pytest.raises(NackedError):
            await channel.publish("", "small", b"2")
        await channel.publish("", "q", b"the channel is still open")


@async_test
async def test_unacked_messages_are_redelivered() -> None:
    async with open_connection() as connection:
        channel = await connection.channel()
        await channel.confirm()
        await channel.declare_queue("q")
        consumer = RecordingConsumer()
        await channel.consume("q", consumer.on_message, "c")
        await channel.publish_all(("", "q", b"%d" % each, MessageProperties()) for each in range(10))
        for message in await consumer.wait_for_messages(10):
            if int(message.body) in (0, 1, 2, 5, 9):
                channel.ack(message.tag)
        await channel.close()
        other, again = await connection.channel(), RecordingConsumer()
        await other.consume("q", again.on_message, "c")
        messages = await again.wait_for_messages(5)
        assert sorted(int(each.body) for each in messages) == [3, 4, 6, 7, 8]
        assert all(each.redelivered for each in messages)


@async_test
async def test_prefetch_limits_unacked_messages() -> None:
    async with open_channel() as channel:
        await channel.publish_all(("", "q", b"%d" % each, MessageProperties()) for each in range(50))
        consumer = RecordingConsumer()
        await channel.prefetch(7)
        await channel.consume("q", consumer.on_message, "c")
        await consumer.wait_for_messages(7)
        remaining = await channel.declare_queue("q", passive=True)
        assert (len(consumer.messages), remaining.message_count) == (7, 43)
        channel.ack(consumer.messages[3].tag)
        await consumer.wait_for_messages(8)


@async_test
async def test_nack_requeues_or_dead_letters() -> None:
    async with open_channel() as channel:
        await channel.declare_queue("dead")
        await channel.declare_queue("w", {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"})
        await channel.publish("", "w", b"x")
        first = await channel.get("w")
        assert first is not None
        channel.nack(first.tag, requeue=True)
        again = await channel.get("w")
        assert again is not None
        assert again.redelivered
        channel.nack(again.tag, requeue=False)
        assert await channel.get("w") is None
        letter = await channel.get("dead")
        assert letter is not None
        assert letter.headers["x-first-death-reason"] == "rejected"


@async_test
async def test_rejected_request_closes_only_its_channel() -> None:
    async with open_connection() as connection:
        first, second = await connection.channel(), await connection.channel()
        reasons: list[str] = []
        first.on_close = lambda error: reasons.append(error.code)
        with pytest.raises(ChannelClosedError, match="no queue 'nowhere'") as caught:
            await first.declare_queue("nowhere", passive=True)
        assert (caught.value.code, caught.value.reply, reasons) == ("NOT_FOUND", 404, ["NOT_FOUND"])
        with pytest.raises(ChannelClosedError):
            await first.declare_queue("q")
        await second.declare_queue("q")
        with pytest.raises(ChannelClosedError) as caught:
            await second.declare_queue("q", {"x-max-length": 3})
        assert caught.value.code == "PRECONDITION_FAILED"
        third = await connection.channel()
        assert third.number == 1
        await third.confirm()
        with pytest.raises(ChannelClosedError, match="no exchange"):
            await third.publish("nowhere", "q", b"x")


@async_test
async def test_refused_connection_contains_reason() -> None:
    with broker().vhost() as vhost:
        with pytest.raises(ConnectionRefusedByBrokerError) as caught:
            await connect(broker().url(vhost, password="hunter2"))
        assert caught.value.code == "ACCESS_REFUSED"
        assert "hunter2" not in str(caught.value)
        with pytest.raises(ConnectionRefusedByBrokerError) as caught:
            await connect(broker().url("no such vhost"))
        assert caught.value.code in ("NOT_ALLOWED", "ACCESS_REFUSED")


@async_test
async def test_special_characters_in_url_are_percent_encoded() -> None:
    broker().api("PUT", "vhosts/a%2Fb%20c")
    broker().user("we:ird@ü", "p/w?#%", "a%2Fb%20c", ".*", ".*", ".*")
    connection = await connect(broker().url("a/b c", "we:ird@ü", "p/w?#%"))
    channel = await connection.channel()
    await channel.declare_queue("q")
    await connection.close()
    broker().api("DELETE", "vhosts/a%2Fb%20c")


@async_test
async def test_closed_port_is_unreachable() -> None:
    with pytest.raises(BrokerUnavailableError) as caught:
        await connect("amqp://127.0.0.1:1/")
    assert caught.value.code == "UNREACHABLE"


@async_test
async def test_deleted_queue_cancels_consumer() -> None:
    async with open_channel() as channel:
        consumer = RecordingConsumer()
        await channel.consume("q", consumer.on_message, "mine", consumer.on_cancel)
        await channel.delete_queue("q")
        assert await consumer.wait_for_cancel() == ["mine"]


@async_test
async def test_cancelled_consumer_gets_no_messages() -> None:
    async with open_channel() as channel:
        consumer = RecordingConsumer()
        await channel.consume("q", consumer.on_message, "c")
        await channel.cancel("c")
        await channel.publish("", "q", b"x")
        assert (await channel.declare_queue("q", passive=True)).message_count == 1
        assert consumer.messages == []


@async_test
async def test_concurrent_requests_get_their_answers() -> None:
    async with open_channel() as channel:
        names = [f"q{each}" for each in range(50)]
        found = await asyncio.gather(*(channel.declare_queue(name) for name in names))
        assert [each.queue for each in found] == names


@async_test
async def test_close_sends_acks_and_rejects_later_requests() -> None:
    with broker().vhost() as vhost:
        connection = await connect(broker().url(vhost))
        channel = await connection.channel()
        await channel.confirm()
        await channel.declare_queue("q")
        await channel.publish("", "q", b"x")
        message = await channel.get("q")
        assert message is not None
        channel.ack(message.tag)
        await connection.close()
        with pytest.raises(BrokerUnavailableError) as caught:
            await channel.declare_queue("q")
        assert caught.value.code == "CLOSED"
        with pytest.raises(BrokerUnavailableError):
            await connection.channel()
        assert channel.publish("", "q", b"y").exception() is not None
        again = await connect(broker().url(vhost))
        assert (await (await again.channel()).declare_queue("q", passive=True)).message_count == 0
        await again.close()


@async_test
async def test_cancelled_close_ends_connection() -> None:
    connection = await connect(broker().url())
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):  # before the broker can answer
            await connection.close()
    assert connection.error is not None
    await asyncio.wait_for(connection.ended, 60)


@async_test
async def test_heartbeats_keep_idle_connection() -> None:
    async with open_connection("?heartbeat=1") as connection:
        await asyncio.wait((connection.ended,), timeout=4.5)
        assert connection.error is None
        await (await connection.channel()).declare_queue("q")


@async_test
async def test_channel_numbers_are_reused_up_to_limit() -> None:
    async with open_connection("?channel_max=2") as connection:
        first, second = await connection.channel(), await connection.channel()
        with pytest.raises(Exception, match="in use"):
            await connection.channel()
        await first.close()
        third = await connection.channel()
        assert [each.number for each in (first, second, third)] == [1, 2, 1]


@async_test
async def test_deliveries_keep_order() -> None:
    async with open_channel() as channel:
        consumer = RecordingConsumer()
        await channel.consume("q", consumer.on_message, "c")
        await channel.publish_all(("", "q", b"%d" % each, MessageProperties()) for each in range(500))
        tags = [each.tag for each in await consumer.wait_for_messages(500)]
        assert all(one + 1 == other for one, other in pairwise(tags))


@async_test
async def test_broker_version_is_known() -> None:
    async with open_connection() as connection:
        assert connection.version >= (3, 8)
