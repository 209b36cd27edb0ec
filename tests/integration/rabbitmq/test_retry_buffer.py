"""Messages that could not be sent are retried when the broker is available again."""

from __future__ import annotations

import pytest

from rune.adapters.rabbitmq.amqp.channel import Outgoing
from rune.adapters.rabbitmq.amqp.errors import AmqpError, BrokerUnavailableError, ChannelClosedError
from rune.adapters.rabbitmq.amqp.frames import MessageProperties
from rune.adapters.rabbitmq.publisher import Publisher
from rune.adapters.rabbitmq.queue import RetryBuffer
from rune.adapters.rabbitmq.topology import Topology
from rune.core.execution.token import Token
from rune.ports.journal import StoreUnavailableError
from tests.support.async_test import async_test
from tests.support.rabbitmq_queues import vhost_queues
from tests.support.services.proxy import Proxy
from tests.support.services.rabbitmq import broker, free_ports

UNAVAILABLE = BrokerUnavailableError("unavailable")


def message(number: int, size: int = 0) -> Outgoing:
    return ("workflow.execution", "workflow.execution", str(number).encode().ljust(size), MessageProperties())


@async_test
async def test_send_over_stalled_connection_is_retried() -> None:
    async with vhost_queues() as vhost, Proxy(broker().port).running() as proxy:
        url = vhost.url.replace(str(broker().port), str(proxy.port)) + "?heartbeat=1"
        queue = vhost.queue(url=url, deadline=1.0)
        await queue.send("x", [Token(0)])
        proxy.stall()
        with pytest.raises(StoreUnavailableError):
            await queue.send("x", [Token(1)])
        other = vhost.queue("other")
        assert [(await other.receive()).token.node for _ in range(2)] == [0, 1]


@async_test
async def test_send_to_unreachable_broker_is_retried() -> None:
    async with vhost_queues() as vhost:
        (port,) = free_ports(1)
        queue = vhost.queue(url=vhost.url.replace(str(broker().port), str(port)), deadline=0.5)
        with pytest.raises(StoreUnavailableError):
            await queue.send("x", [Token(7)])
        async with Proxy(broker().port).running(port):
            assert (await vhost.queue("other").receive()).token.node == 7
            await queue.close()


@async_test
async def test_message_that_is_sent_again_during_an_outage_is_kept_once() -> None:
    unsent = RetryBuffer(Publisher("amqp://127.0.0.1:1", Topology(), "test", deadline=1.0))
    for _ in range(3):
        unsent.keep([message(1), message(2)], UNAVAILABLE)
    assert len(unsent) == 2
    await unsent.close()


@pytest.mark.parametrize(("limit", "size", "expected"), [(3, 0, 3), (100, 40, 2)])
@async_test
async def test_full_buffer_keeps_newest(limit: int, size: int, expected: int) -> None:
    unsent = RetryBuffer(Publisher("amqp://127.0.0.1:1", Topology(), "test", deadline=1.0), limit, 100)
    unsent.keep([message(each, size) for each in range(10)], UNAVAILABLE)
    assert len(unsent) == expected
    assert [each[2].strip() for each in unsent._messages] == [
        str(each).encode() for each in range(10 - expected, 10)
    ]
    await unsent.close()


@pytest.mark.parametrize(
    "error", [ChannelClosedError("no", 403), BrokerUnavailableError("no route", code="NO_ROUTE")], ids=str
)
@async_test
async def test_permanent_errors_are_not_buffered(error: AmqpError) -> None:
    unsent = RetryBuffer(Publisher("amqp://127.0.0.1:1", Topology(), "test", deadline=1.0))
    unsent.keep([message(1)], error)
    assert len(unsent) == 0
