"""The queue on RabbitMQ when the broker, a queue or the wire goes away, and comes back."""

from __future__ import annotations

import asyncio

import pytest
from pamqp import commands

from rune.core.execution.token import Token
from rune.ports.journal import StoreUnavailableError
from tests.integration.rabbitmq.helping import scenario
from tests.integration.rabbitmq.queues import Place, place
from tests.support.services.proxy import Proxy
from tests.support.services.rabbitmq import broker, mortal_broker
from tests.support.waiting import until


@pytest.fixture
def mortal() -> None:
    mortal_broker()


@scenario
async def test_a_queue_that_was_deleted_under_its_consumer_is_there_again() -> None:
    async with place() as here:
        queue = here.queue()
        await queue.send("x", [Token(0)])
        await queue.ack(await queue.receive())
        waiting = asyncio.ensure_future(queue.receive())
        broker().api("DELETE", f"queues/{here.vhost}/workflow.execution")
        await queue.send("x", [Token(1)])
        assert (await waiting).token.node == 1


@scenario
async def test_all_queues_and_exchanges_may_go() -> None:
    async with place() as here:
        queue = here.queue()
        await queue.send("x", [Token(0)])
        await queue.ack(await queue.receive())
        for kind in ("queues", "exchanges"):
            for found in broker().api("GET", f"{kind}/{here.vhost}"):
                if found["name"].startswith("workflow."):
                    broker().api("DELETE", f"{kind}/{here.vhost}/{found['name']}")
        await queue.send("x", [Token(1)])
        assert (await queue.receive()).token.node == 1


@scenario
async def test_a_silent_wire_is_replaced() -> None:
    async with place() as here, Proxy(broker().port).running() as proxy:
        url = here.url.replace(str(broker().port), str(proxy.port)) + "?heartbeat=1"
        queue = here.queue(url=url, deadline=3.0)
        await queue.send("x", [Token(0)])
        await queue.receive()
        proxy.stall()
        again = await queue.receive()
        assert (again.token.node, again.again) == (0, True)
        await queue.ack(again)
        await queue.close()


@scenario
async def test_a_consumer_that_vanished_without_a_word_is_noticed() -> None:
    async with place() as here:
        queue = here.queue(watch=0.2)
        await queue.send("x", [Token(0)])
        await queue.ack(await queue.receive())
        channel = queue.consumer._channel
        assert channel is not None
        for name in queue.topology.work:
            await channel.request(commands.Basic.Cancel(f"one {name}"))
        await queue.send("x", [Token(1)])
        assert (await queue.receive()).token.node == 1
        await until(lambda: queue.consumer.link.made == 2)


@scenario
async def test_a_healthy_consumer_is_left_alone() -> None:
    async with place() as here:
        queue = here.queue(watch=0.05)
        await queue.send("x", [Token(0)])
        held = await queue.receive()
        waiting = asyncio.ensure_future(queue.receive())
        await asyncio.wait((waiting,), timeout=1.0)
        assert queue.consumer.link.made == 1
        await queue.ack(held)
        waiting.cancel()


@pytest.mark.usefixtures("mortal")
@scenario
async def test_a_killed_broker_loses_nothing_and_its_clients_come_back() -> None:
    async with place(mortal_broker()) as here:
        queue = here.queue(deadline=180.0)
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


@pytest.mark.usefixtures("mortal")
@scenario
async def test_a_broker_without_its_data_is_set_up_again() -> None:
    here = Place(mortal_broker().url(), "/")
    queue = here.queue(deadline=180.0)
    await queue.send("x", [Token(0)])
    await queue.ack(await queue.receive())
    waiting = asyncio.ensure_future(queue.receive())
    await asyncio.to_thread(mortal_broker().restart, empty=True)
    await queue.send("x", [Token(1)])
    assert (await waiting).token.node == 1
    await here.close()


@pytest.mark.usefixtures("mortal")
@scenario
async def test_during_an_alarm_sending_is_an_outage_and_receiving_goes_on() -> None:
    async with place(mortal_broker()) as here:
        queue = here.queue(deadline=1.0)
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
        await until(lambda: _sends(queue.send("x", [Token(3)])))
        seen: set[int] = set()
        while seen != {2, 3}:  # what could not be sent in time follows, perhaps more than once
            seen.add((await queue.receive()).token.node)


async def _sends(sending: object) -> bool:
    try:
        await sending  # type: ignore[misc]
    except StoreUnavailableError:
        return False
    return True


@pytest.mark.usefixtures("mortal")
@pytest.mark.parametrize(("early", "comes_again"), [(0.3, False), (60.0, True)])
@scenario
async def test_a_node_longer_than_the_ack_timeout(early: float, comes_again: bool) -> None:
    """Acknowledged early it does not matter; otherwise the broker ends the channel, and it comes again."""
    limit = "application:set_env(rabbit, consumer_timeout, {}), application:set_env(rabbit, channel_tick_interval, {})."
    await asyncio.to_thread(mortal_broker().control, "eval", limit.format(1500, 300))
    try:
        async with place(mortal_broker()) as here:
            queue = here.queue(early=early)
            await queue.send("x", [Token(0)])
            await queue.receive()
            waiting = asyncio.ensure_future(queue.receive())
            await asyncio.wait((waiting,), timeout=None if comes_again else 4.0)
            assert waiting.done() == comes_again
            waiting.cancel()
    finally:
        await asyncio.to_thread(mortal_broker().control, "eval", limit.format(1_800_000, 60_000))
