"""What could not be sent in time follows by itself when the broker is back."""

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
from tests.integration.rabbitmq.helping import scenario
from tests.integration.rabbitmq.queues import place
from tests.support.services.proxy import Proxy
from tests.support.services.rabbitmq import broker, free_ports

AWAY = BrokerUnavailableError("away")


def message(number: int, size: int = 0) -> Outgoing:
    return ("workflow.execution", "workflow.execution", str(number).encode().ljust(size), MessageProperties())


@scenario
async def test_what_was_lost_on_a_silent_wire_follows() -> None:
    async with place() as here, Proxy(broker().port).running() as proxy:
        url = here.url.replace(str(broker().port), str(proxy.port)) + "?heartbeat=1"
        queue = here.queue(url=url, deadline=1.0)
        await queue.send("x", [Token(0)])
        proxy.stall()
        with pytest.raises(StoreUnavailableError):
            await queue.send("x", [Token(1)])
        other = here.queue("other")
        assert [(await other.receive()).token.node for _ in range(2)] == [0, 1]


@scenario
async def test_what_never_reached_the_broker_follows() -> None:
    async with place() as here:
        (port,) = free_ports(1)
        queue = here.queue(url=here.url.replace(str(broker().port), str(port)), deadline=0.5)
        with pytest.raises(StoreUnavailableError):
            await queue.send("x", [Token(7)])
        async with Proxy(broker().port).running(port):
            assert (await here.queue("other").receive()).token.node == 7
            await queue.close()


@pytest.mark.parametrize(("most", "size", "kept"), [(3, 0, 3), (100, 40, 2)])
@scenario
async def test_the_newest_are_kept(most: int, size: int, kept: int) -> None:
    unsent = RetryBuffer(Publisher("amqp://127.0.0.1:1", Topology(), "nobody", deadline=1.0), most, 100)
    unsent.keep([message(each, size) for each in range(10)], AWAY)
    assert len(unsent) == kept
    assert [each[2].strip() for each in unsent._messages] == [
        str(each).encode() for each in range(10 - kept, 10)
    ]
    await unsent.close()


@pytest.mark.parametrize(
    "error", [ChannelClosedError("no", 403), BrokerUnavailableError("nowhere", code="NO_ROUTE")], ids=str
)
@scenario
async def test_what_will_not_be_better_later_is_not_kept(error: AmqpError) -> None:
    unsent = RetryBuffer(Publisher("amqp://127.0.0.1:1", Topology(), "nobody", deadline=1.0))
    unsent.keep([message(1)], error)
    assert len(unsent) == 0
