"""RabbitMQ queue when the broker, a queue or the connection is lost and restored."""

from __future__ import annotations

import asyncio

import pytest
from pamqp import commands

from rune.core.execution.token import Token
from rune.ports.journal import StoreUnavailableError
from tests.support.async_test import async_test
from tests.support.rabbitmq_queues import VhostQueues, vhost_queues
from tests.support.services.proxy import Proxy
from tests.support.services.rabbitmq import broker, mortal_broker
from tests.support.waiting import until

pytestmark = pytest.mark.long


@pytest.fixture
def own_broker() -> None:
    mortal_broker().start()


@async_test
async def test_deleted_queue_is_declared_again() -> None:
    async with vhost_queues() as vhost:
        queue = vhost.queue()
        await queue.send("x", [Token(0)])
        await queue.ack(await queue.receive())
        waiting = asyncio.ensure_future(queue.receive())
        broker().api("DELETE", f"queues/{vhost.name}/workflow.execution")
        await queue.send("x", [Token(1)])
        assert (await waiting).token.node == 1


@async_test
async def test_deleted_topology_is_declared_again() -> None:
    async with vhost_queues() as vhost:
        queue = vhost.queue()
        await queue.send("x", [Token(0)])
        await queue.ack(await queue.receive())
        for kind in ("queues", "exchanges"):
            for found in broker().api("GET", f"{kind}/{vhost.name}"):
                if found["name"].startswith("workflow."):
                    broker().api("DELETE", f"{kind}/{vhost.name}/{found['name']}")
        await queue.send("x", [Token(1)])
        assert (await queue.receive()).token.node == 1


@async_test
async def test_stalled_connection_is_replaced() -> None:
    async with vhost_queues() as vhost, Proxy(broker().port).running() as proxy:
        url = vhost.url.replace(str(broker().port), str(proxy.port)) + "?heartbeat=1"
        queue = vhost.queue(url=url, deadline=3.0)
        await queue.send("x", [Token(0)])
        await queue.receive()
        proxy.stall()
        again = await queue.receive()
        assert (again.token.node, again.again) == (0, True)
        await queue.ack(again)
        await queue.close()


@async_test
async def test_silently_cancelled_consumer_is_restored() -> None:
    async with vhost_queues() as vhost:
        queue = vhost.queue(watch=0.2)
        await queue.send("x", [Token(0)])
        await queue.ack(await queue.receive())
        channel = queue.consumer._channel
        assert channel is not None
        for name in queue.topology.work:
            await channel.request(commands.Basic.Cancel(f"one {name}"))
        await queue.send("x", [Token(1)])
        assert (await queue.receive()).token.node == 1
        await until(lambda: queue.consumer.link.made == 2)


@async_test
async def test_healthy_consumer_is_not_reconnected() -> None:
    async with vhost_queues() as vhost:
        queue = vhost.queue(watch=0.05)
        await queue.send("x", [Token(0)])
        held = await queue.receive()
        waiting = asyncio.ensure_future(queue.receive())
        await asyncio.wait((waiting,), timeout=1.0)
        assert queue.consumer.link.made == 1
        await queue.ack(held)
        waiting.cancel()


@pytest.mark.usefixtures("own_broker")
@async_test
async def test_killed_broker_loses_no_token() -> None:
    async with vhost_queues(mortal_broker()) as vhost:
        queue = vhost.queue(deadline=180.0)
        await queue.send("x", [Token(node) for node in range(20)])
        held = [await queue.receive() for _ in range(5)]
        await asyncio.to_thread(mortal_broker().settle)
        mortal_broker().kill()
        sending = asyncio.ensure_future(queue.send("late", [Token(0)]))
        for each in held[:2]:
            await queue.ack(each)
        for each in held[2:]:
            await queue.requeue(each)
        await asyncio.to_thread(mortal_broker().start)
        await sending
        seen: set[tuple[str, int]] = set()
        while len(seen) < 21:
            delivery = await queue.receive()
            await queue.ack(delivery)
            seen.add((delivery.execution, delivery.token.node))
        assert ("late", 0) in seen


@pytest.mark.usefixtures("own_broker")
@async_test
async def test_emptied_broker_is_declared_again() -> None:
    vhost = VhostQueues(mortal_broker().url(), "/")
    queue = vhost.queue(deadline=180.0)
    await queue.send("x", [Token(0)])
    await queue.ack(await queue.receive())
    waiting = asyncio.ensure_future(queue.receive())
    await asyncio.to_thread(mortal_broker().restart, empty=True)
    await queue.send("x", [Token(1)])
    assert (await waiting).token.node == 1
    await vhost.close()


@pytest.mark.usefixtures("own_broker")
@async_test
async def test_alarm_blocks_sends_but_not_receives() -> None:
    async with vhost_queues(mortal_broker()) as vhost:
        queue = vhost.queue(deadline=1.0)
        await queue.send("x", [Token(0), Token(1)])
        first = await queue.receive()
        await asyncio.to_thread(mortal_broker().alarm, memory_low=True)
        try:
            with pytest.raises(StoreUnavailableError):
                await queue.send("x", [Token(2)])
            with pytest.raises(StoreUnavailableError):
                await queue.send("x", [Token(2)])
            await queue.ack(first)
            assert (await queue.receive()).token.node == 1
        finally:
            await asyncio.to_thread(mortal_broker().alarm, memory_low=False)
        await until(lambda: _succeeds(queue.send("x", [Token(3)])))
        seen: set[int] = set()
        while seen != {2, 3}:  # buffered sends follow, possibly more than once
            seen.add((await queue.receive()).token.node)


async def _succeeds(sending: object) -> bool:
    try:
        await sending  # type: ignore[misc]
    except StoreUnavailableError:
        return False
    return True


@pytest.mark.usefixtures("own_broker")
@pytest.mark.parametrize(("early", "redelivered"), [(0.3, False), (60.0, True)])
@async_test
async def test_early_ack_prevents_redelivery_after_consumer_timeout(early: float, redelivered: bool) -> None:
    """An early ack avoids the consumer timeout; otherwise the broker closes the channel and redelivers."""
    limit = "application:set_env(rabbit, consumer_timeout, {}), application:set_env(rabbit, channel_tick_interval, {})."
    await asyncio.to_thread(mortal_broker().control, "eval", limit.format(1500, 300))
    try:
        async with vhost_queues(mortal_broker()) as vhost:
            queue = vhost.queue(early=early)
            await queue.send("x", [Token(0)])
            await queue.receive()
            waiting = asyncio.ensure_future(queue.receive())
            await asyncio.wait((waiting,), timeout=None if redelivered else 4.0)
            assert waiting.done() == redelivered
            waiting.cancel()
    finally:
        await asyncio.to_thread(mortal_broker().control, "eval", limit.format(1_800_000, 60_000))
