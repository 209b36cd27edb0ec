"""Hazards C where RabbitMQ is the queue: on a real broker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from rune.adapters.rabbitmq.amqp.errors import AmqpError, BrokerUnavailableError
from rune.adapters.rabbitmq.queue import RabbitQueue
from rune.adapters.rabbitmq.topology import Kind, Topology
from rune.core.execution.token import Token
from rune.ports.queue import Route, default_route
from tests.integration.rabbitmq.helping import scenario
from tests.support.services.proxy import Proxy
from tests.support.services.rabbitmq import broker

SOON = 45.0  # s: long enough for whatever is on its way


@pytest.fixture(scope="module")
def started() -> None:
    """Before the first test has a deadline."""
    broker()


@asynccontextmanager
async def opened(
    url: str, *, early: float = 60.0, deadline: float = 10.0, route: Route = default_route
) -> AsyncIterator[RabbitQueue]:
    queue = RabbitQueue(url, early=early, deadline=deadline, route=route)
    try:
        yield queue
    finally:
        await queue.close()


@pytest.mark.usefixtures("started")
@scenario
async def test_h_c1_a_token_is_sent_when_the_broker_says_so() -> None:
    # fault: c1: what is published is not confirmed
    with broker().vhost() as vhost:
        async with Proxy(broker().port).running() as proxy:
            url = broker().url(vhost).replace(str(broker().port), str(proxy.port))
            async with opened(url, deadline=1.0) as queue:
                await queue.send("x", [Token(1)])
                proxy.stall()
                with pytest.raises(BrokerUnavailableError):
                    await queue.send("x", [Token(2)])


@pytest.mark.usefixtures("started")
@scenario
async def test_h_c2_what_cannot_be_routed_is_not_taken_for_sent() -> None:
    # fault: c2: publishing is not mandatory
    async def nowhere(execution: str, token: Token) -> str:
        return "nowhere"

    with broker().vhost() as vhost:
        async with opened(broker().url(vhost), deadline=1.0, route=nowhere) as queue:
            with pytest.raises(AmqpError):
                await queue.send("x", [Token(1)])


@pytest.mark.usefixtures("started")
@scenario
async def test_h_c9_what_runs_for_long_is_not_handed_out_again() -> None:
    # fault: c9: a delivery is held until its node has ended
    with broker().vhost() as vhost:
        async with opened(broker().url(vhost), early=0.05) as queue:
            await queue.send("x", [Token(1)])
            held = await queue.receive()
            waiting = asyncio.create_task(queue.receive())
            await asyncio.wait([waiting], timeout=0.5)
            waiting.cancel()
        async with opened(broker().url(vhost)) as other:  # the channel is closed, as after half an hour
            await other.send("x", [Token(2)])
            again = await other.receive()
    assert (held.token, again.token) == (Token(1), Token(2))


@pytest.mark.usefixtures("started")
@scenario
async def test_h_c11_a_short_delay_does_not_wait_behind_a_long_one() -> None:
    # fault: c11: whatever waits waits in one queue
    with pytest.MonkeyPatch.context() as patched, broker().vhost() as vhost:
        patched.setattr("rune.adapters.rabbitmq.topology.DELAYS_S", (1, 60))
        patched.setattr("rune.adapters.rabbitmq.queue.DELAYS_S", (1, 60))
        patched.setattr("rune.adapters.rabbitmq.queue.MAX_LOCAL_DELAY_S", 0)
        async with opened(broker().url(vhost)) as queue:
            await queue.send("x", [Token(1), Token(2)])
            first, second = await queue.receive(), await queue.receive()
            await queue.requeue(first, 60)
            await queue.requeue(second, 1)
            back = asyncio.create_task(queue.receive())
            done, _ = await asyncio.wait([back], timeout=SOON)
            assert done, "nothing came back"
            assert back.result().token == second.token


@pytest.mark.parametrize("kind", ["classic", "quorum"])
@pytest.mark.parametrize("version", [(3, 8), (3, 10), (4, 0)])
def test_h_c13_a_backlog_has_no_time_to_live(kind: Kind, version: tuple[int, ...]) -> None:
    # fault: c13: work lives for a day
    topology = Topology("workflow", ("default", "gpu"), kind)
    work = [each for each in topology.table(version) if each.name in topology.work]
    assert len(work) == 6
    for each in work:
        assert each.arguments.keys().isdisjoint({"x-message-ttl", "x-expires", "x-max-length"})
