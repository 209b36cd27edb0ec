"""Hazards C of the RabbitMQ queue, on a real broker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aio_pika
import pytest

from rune.adapters.rabbitmq.amqp.errors import AmqpError, BrokerUnavailableError
from rune.adapters.rabbitmq.queue import RabbitQueue
from rune.adapters.rabbitmq.topology import Kind, Topology
from rune.core.execution.token import Token
from rune.ports.queue import Route, default_route
from tests.hazards.dead_letters import next_dead_letter
from tests.support.async_test import async_test
from tests.support.rabbitmq_queues import vhost_queues
from tests.support.services.proxy import Proxy
from tests.support.services.rabbitmq import broker

WORK = "workflow.execution"
TIMEOUT_S = 60.0


@pytest.fixture(scope="module")
def started() -> None:
    """Start the broker before the timeout of the first test begins."""
    broker()


@asynccontextmanager
async def open_queue(
    url: str, *, early: float = 60.0, deadline: float = 10.0, route: Route = default_route
) -> AsyncIterator[RabbitQueue]:
    queue = RabbitQueue(url, early=early, deadline=deadline, route=route)
    try:
        yield queue
    finally:
        await queue.close()


@pytest.mark.usefixtures("started")
@async_test
async def test_h_c1_unconfirmed_send_fails() -> None:
    # fault: c1: publishing does not wait for the confirmation
    with broker().vhost() as vhost:
        async with Proxy(broker().port).running() as proxy:
            url = broker().url(vhost).replace(str(broker().port), str(proxy.port))
            async with open_queue(url, deadline=1.0) as queue:
                await queue.send("x", [Token(1)])
                proxy.stall()
                with pytest.raises(BrokerUnavailableError):
                    await queue.send("x", [Token(2)])


@pytest.mark.usefixtures("started")
@async_test
async def test_h_c2_unroutable_send_fails() -> None:
    # fault: c2: publishing is not mandatory
    async def nowhere(execution: str, token: Token) -> str:
        return "nowhere"

    with broker().vhost() as vhost:
        async with open_queue(broker().url(vhost), deadline=1.0, route=nowhere) as queue:
            with pytest.raises(AmqpError):
                await queue.send("x", [Token(1)])


@pytest.mark.usefixtures("started")
@async_test
async def test_h_c9_long_running_token_is_not_redelivered() -> None:
    # fault: c9: a delivery is held until its node has ended
    with broker().vhost() as vhost:
        async with open_queue(broker().url(vhost), early=0.05) as queue:
            await queue.send("x", [Token(1)])
            held = await queue.receive()
            waiting = asyncio.create_task(queue.receive())
            await asyncio.wait([waiting], timeout=0.5)
            waiting.cancel()
        # The first channel is closed, as the broker does after half an hour.
        async with open_queue(broker().url(vhost)) as other:
            await other.send("x", [Token(2)])
            again = await other.receive()
    assert (held.token, again.token) == (Token(1), Token(2))


@pytest.mark.usefixtures("started")
@async_test
async def test_h_c11_short_delay_is_not_blocked_by_long_one() -> None:
    # fault: c11: all delayed messages wait in one queue
    with pytest.MonkeyPatch.context() as patched, broker().vhost() as vhost:
        patched.setattr("rune.adapters.rabbitmq.topology.DELAYS_S", (1, 60))
        patched.setattr("rune.adapters.rabbitmq.queue.DELAYS_S", (1, 60))
        patched.setattr("rune.adapters.rabbitmq.queue.MAX_LOCAL_DELAY_S", 0)
        async with open_queue(broker().url(vhost)) as queue:
            await queue.send("x", [Token(1), Token(2)])
            first, second = await queue.receive(), await queue.receive()
            await queue.requeue(first, 60)
            await queue.requeue(second, 1)
            back = asyncio.create_task(queue.receive())
            done, _ = await asyncio.wait([back], timeout=TIMEOUT_S)
            assert done, "no message was redelivered"
            assert back.result().token == second.token


@pytest.mark.usefixtures("started")
@async_test
async def test_h_c3_unreadable_message_is_dead_lettered() -> None:
    # fault: c3-rabbitmq: it is acknowledged and lost
    async with vhost_queues() as here:
        queue = here.queue()
        await queue.check()
        await here.put(WORK, b"{not json")
        await queue.send("x", [Token(1)])
        assert (await queue.receive()).execution == "x", "the unreadable message blocks the queue"
        letter = await next_dead_letter(here.url)
        assert letter is not None
        assert letter.headers["rune-code"] == "BAD_MESSAGE"


@pytest.mark.parametrize("kind", ["classic", "quorum"])
@pytest.mark.usefixtures("started")
def test_h_c3_rejected_message_is_dead_lettered(kind: str) -> None:
    # fault: c3-rejected: work queues have no dead-letter exchange

    @async_test
    async def go() -> None:
        async with vhost_queues() as here:
            await here.queue(kind=kind).check()
            await here.put(WORK, b"{}")
            async with await aio_pika.connect(here.url) as connection:
                queue = await (await connection.channel()).get_queue(WORK, ensure=False)
                await (await queue.get()).reject(requeue=False)
            assert await next_dead_letter(here.url) is not None

    go()


@pytest.mark.usefixtures("started")
@async_test
async def test_h_c4_delayed_message_is_not_redelivered_at_once() -> None:
    # fault: c4-rabbitmq: a requeued message goes to the end of its queue at once
    async with vhost_queues() as here:
        queue = here.queue()
        await queue.send("x", [Token(1)])
        await queue.requeue(await queue.receive(), 125.0)
        again = asyncio.create_task(queue.receive())
        done, _ = await asyncio.wait([again], timeout=2.0)
        again.cancel()
        assert not done


@pytest.mark.usefixtures("started")
@async_test
async def test_h_c10_prefetched_messages_of_busy_worker_go_to_idle_one() -> None:
    # fault: c10-rabbitmq: a consumer without a free slot keeps its prefetched messages
    async with vhost_queues() as here:
        busy, idle = here.queue("busy", prefetch=1), here.queue("idle", prefetch=10)
        await busy.send("slow", [Token(0)])
        held = await busy.receive()
        for priority in (1, 5, 9):
            await busy.send("more", [Token(each) for each in range(3)], priority)
        got = [asyncio.create_task(idle.receive()) for _ in range(9)]
        done, late = await asyncio.wait(got, timeout=TIMEOUT_S)
        for each in late:
            each.cancel()
        assert len(done) == 9
        await busy.ack(held)


@pytest.mark.parametrize("kind", ["classic", "quorum"])
@pytest.mark.parametrize("version", [(3, 8), (3, 10), (4, 0)])
def test_h_c13_work_queues_have_no_time_to_live(kind: Kind, version: tuple[int, ...]) -> None:
    # fault: c13: messages of the work queues expire after a day
    topology = Topology("workflow", ("default", "gpu"), kind)
    work = [each for each in topology.table(version) if each.name in topology.work]
    assert len(work) == 6
    for each in work:
        assert each.arguments.keys().isdisjoint({"x-message-ttl", "x-expires", "x-max-length"})
