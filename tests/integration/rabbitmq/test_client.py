"""The client against a real broker."""

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
from tests.integration.rabbitmq.helping import Basket, connected, on_channel, scenario
from tests.support.services.rabbitmq import broker


@scenario
async def test_a_message_arrives_as_it_was_sent() -> None:
    async with on_channel() as channel:
        basket = Basket()
        await channel.consume("q", basket.take, "c")
        stamp = MessageProperties(headers={"why": "because", "n": 3}, message_id="m1", type="t")
        await channel.publish("", "q", b'{"a": 1}', stamp)
        (message,) = await basket.filled(1)

        assert message.body == b'{"a": 1}'
        assert (message.routing_key, message.redelivered) == ("q", False)
        assert message.headers == {"why": "because", "n": 3}
        assert (message.properties.message_id, message.properties.delivery_mode) == ("m1", 2)


@pytest.mark.parametrize("size", [0, 1, 4087, 4088, 4089, 1_000_003])
@scenario
async def test_a_body_of_any_size_fits_into_small_frames(size: int) -> None:
    async with on_channel("?frame_max=4096") as channel:
        basket = Basket()
        await channel.consume("q", basket.take, "c")
        body = bytes(range(256)) * (size // 256 + 1)
        await channel.publish("", "q", body[:size])
        (message,) = await basket.filled(1)
        assert message.body == body[:size]


@scenario
async def test_thousands_of_confirms_are_under_way_at_once() -> None:
    async with on_channel() as channel:
        await asyncio.gather(*(channel.publish("", "q", b"%d" % each) for each in range(5000)))
        found = await channel.declare_queue("q", passive=True)
        assert found.message_count == 5000
        basket = Basket()
        await channel.consume("q", basket.take, "c")
        messages = await basket.filled(5000)
        assert [int(each.body) for each in messages] == list(range(5000))
        for message in messages:
            channel.ack(message.tag)
    assert channel.confirms.last == 5000


@scenario
async def test_what_cannot_be_routed_fails_and_its_neighbours_do_not() -> None:
    async with on_channel() as channel:
        keys = ["q", "nowhere", "q", "q", "nobody"]
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


@scenario
async def test_a_full_queue_says_no() -> None:
    async with on_channel() as channel:
        await channel.declare_queue("small", {"x-max-length": 1, "x-overflow": "reject-publish"})
        await channel.publish("", "small", b"1")
        with pytest.raises(NackedError):
            await channel.publish("", "small", b"2")
        await channel.publish("", "q", b"the channel goes on")


@scenario
async def test_what_is_not_acknowledged_comes_again() -> None:
    async with connected() as connection:
        channel = await connection.channel()
        await channel.confirm()
        await channel.declare_queue("q")
        basket = Basket()
        await channel.consume("q", basket.take, "c")
        await channel.publish_all(("", "q", b"%d" % each, MessageProperties()) for each in range(10))
        for message in await basket.filled(10):
            if int(message.body) in (0, 1, 2, 5, 9):
                channel.ack(message.tag)
        await channel.close()
        other, again = await connection.channel(), Basket()
        await other.consume("q", again.take, "c")
        messages = await again.filled(5)
        assert sorted(int(each.body) for each in messages) == [3, 4, 6, 7, 8]
        assert all(each.redelivered for each in messages)


@scenario
async def test_prefetch_bounds_what_is_in_hands() -> None:
    async with on_channel() as channel:
        await channel.publish_all(("", "q", b"%d" % each, MessageProperties()) for each in range(50))
        basket = Basket()
        await channel.prefetch(7)
        await channel.consume("q", basket.take, "c")
        await basket.filled(7)
        left = await channel.declare_queue("q", passive=True)
        assert (len(basket.messages), left.message_count) == (7, 43)
        channel.ack(basket.messages[3].tag)
        await basket.filled(8)


@scenario
async def test_back_to_the_queue_and_to_the_dead_letters() -> None:
    async with on_channel() as channel:
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


@scenario
async def test_a_refused_act_ends_its_channel_and_nothing_else() -> None:
    async with connected() as connection:
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


@scenario
async def test_who_is_not_let_in_learns_why() -> None:
    with broker().vhost() as vhost:
        with pytest.raises(ConnectionRefusedByBrokerError) as caught:
            await connect(broker().url(vhost, password="geheim"))
        assert caught.value.code == "ACCESS_REFUSED"
        assert "geheim" not in str(caught.value)
        with pytest.raises(ConnectionRefusedByBrokerError) as caught:
            await connect(broker().url("no such vhost"))
        assert caught.value.code in ("NOT_ALLOWED", "ACCESS_REFUSED")


@scenario
async def test_odd_names_are_percent_encoded() -> None:
    broker().api("PUT", "vhosts/a%2Fb%20c")
    broker().user("we:ird@ü", "p/w?#%", "a%2Fb%20c", ".*", ".*", ".*")
    connection = await connect(broker().url("a/b c", "we:ird@ü", "p/w?#%"))
    channel = await connection.channel()
    await channel.declare_queue("q")
    await connection.close()
    broker().api("DELETE", "vhosts/a%2Fb%20c")


@scenario
async def test_nobody_there_is_an_outage() -> None:
    with pytest.raises(BrokerUnavailableError) as caught:
        await connect("amqp://127.0.0.1:1/")
    assert caught.value.code == "UNREACHABLE"


@scenario
async def test_a_deleted_queue_ends_its_consumer_with_notice() -> None:
    async with on_channel() as channel:
        basket = Basket()
        await channel.consume("q", basket.take, "mine", basket.cancel)
        await channel.delete_queue("q")
        assert await basket.ended() == ["mine"]


@scenario
async def test_a_consumer_that_ended_gets_nothing_more() -> None:
    async with on_channel() as channel:
        basket = Basket()
        await channel.consume("q", basket.take, "c")
        await channel.cancel("c")
        await channel.publish("", "q", b"x")
        assert (await channel.declare_queue("q", passive=True)).message_count == 1
        assert basket.messages == []


@scenario
async def test_requests_are_answered_in_their_order() -> None:
    async with on_channel() as channel:
        names = [f"q{each}" for each in range(50)]
        found = await asyncio.gather(*(channel.declare_queue(name) for name in names))
        assert [each.queue for each in found] == names


@scenario
async def test_closing_fails_what_was_under_way_and_sends_the_acks() -> None:
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


@scenario
async def test_a_closing_that_is_cancelled_leaves_no_connection_behind() -> None:
    connection = await connect(broker().url())
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):  # before the broker can have answered
            await connection.close()
    assert connection.error is not None
    await asyncio.wait_for(connection.ended, 60)


@scenario
async def test_an_idle_connection_is_kept_by_heartbeats() -> None:
    async with connected("?heartbeat=1") as connection:
        await asyncio.wait((connection.ended,), timeout=4.5)
        assert connection.error is None
        await (await connection.channel()).declare_queue("q")


@scenario
async def test_channels_are_used_again_and_run_out() -> None:
    async with connected("?channel_max=2") as connection:
        first, second = await connection.channel(), await connection.channel()
        with pytest.raises(Exception, match="in use"):
            await connection.channel()
        await first.close()
        third = await connection.channel()
        assert [each.number for each in (first, second, third)] == [1, 2, 1]


@scenario
async def test_deliveries_keep_their_order() -> None:
    async with on_channel() as channel:
        basket = Basket()
        await channel.consume("q", basket.take, "c")
        await channel.publish_all(("", "q", b"%d" % each, MessageProperties()) for each in range(500))
        tags = [each.tag for each in await basket.filled(500)]
        assert all(one + 1 == other for one, other in pairwise(tags))


@scenario
async def test_the_version_is_known() -> None:
    async with connected() as connection:
        assert connection.version >= (3, 8)
