"""Dead letters on the broker."""

from __future__ import annotations

import asyncio

from rune.adapters.rabbitmq.dead_letters import MAX_REQUEUES, DeadLetters
from rune.adapters.rabbitmq.legacy import LegacyExecutor
from rune.codec.messages import NodeExecutionMessage
from rune.core.execution.token import Token
from tests.support.async_test import async_test
from tests.support.rabbitmq_queues import VhostQueues, exhaust_deliveries, vhost_queues
from tests.support.waiting import until


async def make_undeliverable(vhost: VhostQueues) -> None:
    """Exceed the delivery limit of the waiting message. A quorum queue moves it to the dead letters a moment later."""
    await exhaust_deliveries(vhost.url, "workflow.execution")

    async def is_dead() -> bool:
        return await vhost.waiting("workflow.execution.dead") == 1

    await until(is_dead, "the message is a dead letter")


@async_test
async def test_dead_letters_are_listed_requeued_and_discarded() -> None:
    async with vhost_queues() as vhost:
        queue = vhost.queue()
        await queue.send("x", [Token(0), Token(1), Token(2)], 9)
        for code in ("A", "B", "C"):
            await queue.dead_letter(await queue.receive(), code, f"reason {code}")
        letters = DeadLetters(vhost.url, queue.topology)
        found = await letters.list()
        assert [(each.code, each.reason, each.execution) for each in found] == [
            ("A", "reason A", "x"),
            ("B", "reason B", "x"),
            ("C", "reason C", "x"),
        ]
        assert {each.queue for each in found} == {"workflow.execution.high"}
        assert [each.code for each in await letters.list(2)] == ["A", "B"]
        assert await letters.discard(found[0].id) == 1
        assert await letters.requeue(found[2].id) == 1
        assert (await queue.receive()).token.node == 2
        assert [each.code for each in await letters.list()] == ["B"]


@async_test
async def test_readers_at_the_same_time_see_all_letters() -> None:
    async with vhost_queues() as vhost:
        queue = vhost.queue()
        await queue.check()
        for number in range(120):
            await vhost.put("workflow.execution.dead", f"letter {number}".encode())
        letters = DeadLetters(vhost.url, queue.topology)
        lists = await asyncio.gather(*(letters.list(1_000) for _ in range(5)))
        assert [len(each) for each in lists] == [120] * 5
        last = lists[0][-1]
        found = await asyncio.gather(*(letters.find(last.id) for _ in range(5)))
        assert found == [last] * 5


@async_test
async def test_message_over_delivery_limit_is_requeued() -> None:
    async with vhost_queues() as vhost:
        queue = vhost.queue(kind="quorum")
        await queue.send("x", [Token(4)])
        letters = DeadLetters(vhost.url, queue.topology)
        for turn in range(MAX_REQUEUES):
            await make_undeliverable(vhost)
            (letter,) = await letters.list()
            assert (letter.code, letter.execution, letter.rescues) == ("DELIVERY_LIMIT", "x", turn)
            assert await letters.requeue_innocent() == 1
        delivery = await queue.receive()
        assert delivery.token == Token(4)
        await queue.requeue(delivery)
        await queue.close()


@async_test
async def test_message_over_requeue_limit_stays() -> None:
    async with vhost_queues() as vhost:
        queue = vhost.queue(kind="quorum")
        await queue.send("x", [Token(4)])
        letters = DeadLetters(vhost.url, queue.topology)
        for _ in range(MAX_REQUEUES):
            await make_undeliverable(vhost)
            await letters.requeue_innocent()
        await make_undeliverable(vhost)
        assert await letters.requeue_innocent() == 0
        assert len(await letters.list()) == 1


@async_test
async def test_undecodable_dead_letter_is_listed() -> None:
    async with vhost_queues() as vhost:
        queue = vhost.queue()
        await queue.check()
        await vhost.put("workflow.execution.dead", b"\xff noise")
        (letter,) = await DeadLetters(vhost.url, queue.topology).list()
        assert (letter.code, letter.execution, letter.body) == ("UNKNOWN", None, b"\xff noise")
        assert await DeadLetters(vhost.url, queue.topology).requeue_innocent() == 0


@async_test
async def test_letters_of_equal_content_have_ids_of_their_own() -> None:
    async with vhost_queues() as vhost:
        queue = vhost.queue()
        await queue.send("x", [Token(4)] * 3)
        for _ in range(3):
            await queue.dead_letter(await queue.receive(), "A", "reason")
        letters = DeadLetters(vhost.url, queue.topology)
        found = [each.id for each in await letters.list()]
        assert len(set(found)) == 3
        assert await letters.discard(found[1]) == 1
        assert [each.id for each in await letters.list()] == [found[0], found[2]]


@async_test
async def test_letter_is_found_right_after_another_operation_on_quorum_queues() -> None:
    async with vhost_queues() as vhost:
        queue = vhost.queue(kind="quorum")
        await queue.check()
        for number in range(200):
            await vhost.put("workflow.execution.dead", b'{"execution_id": "x%d"}' % number)
        for turn in range(20):
            one, other = (DeadLetters(vhost.url, queue.topology) for _ in range(2))
            found = await one.list(1_000)
            assert len(found) == 200 - turn
            assert await other.discard(found[-1].id) == 1


HEADERS = {"rune-code", "rune-reason", "rune-queue", "rune-letter"}


@async_test
async def test_headers_of_rejected_and_requeued_messages() -> None:
    async with vhost_queues() as vhost:
        queue = vhost.queue()
        await queue.send("x", [Token(4)])
        await queue.dead_letter(await queue.receive(), "A", "reason")
        await queue.close()
        letter = await vhost.take("workflow.execution.dead")
        assert letter is not None
        assert set(letter.headers) == HEADERS
        assert letter.properties.timestamp is not None
        mark = letter.headers["rune-letter"]

        queue = vhost.queue("two")
        await queue.send("x", [Token(4)])
        await queue.dead_letter(await queue.receive(), "A", "reason")
        await queue.close()
        letters = DeadLetters(vhost.url, queue.topology)
        assert await letters.requeue((await letters.list())[0].id) == 1
        again = await vhost.take("workflow.execution")
        assert again is not None
        assert set(again.headers) == {"rune-rescues", "rune-letter"}
        assert again.headers["rune-rescues"] == 1
        assert again.headers["rune-letter"] != mark
        assert again.properties.timestamp is not None


@async_test
async def test_dead_letter_keeps_the_message_id_of_its_publisher() -> None:
    async with vhost_queues() as vhost:
        queue = vhost.queue()
        waiting = asyncio.ensure_future(queue.receive())
        await until(lambda: queue.consumer.link.is_up)
        await vhost.put("workflow.execution", b"noise", message_id="order-7")
        letters = DeadLetters(vhost.url, queue.topology)

        async def listed() -> bool:
            return len(await letters.list()) == 1

        await until(listed, "the message is a dead letter")
        waiting.cancel()
        await asyncio.wait((waiting,))
        await queue.close()
        assert await letters.requeue((await letters.list())[0].id) == 1
        again = await vhost.take("workflow.execution")
        assert again is not None
        assert (again.body, again.message_id) == (b"noise", "order-7")


@async_test
async def test_message_that_the_broker_gave_up_has_the_headers_of_the_broker() -> None:
    async with vhost_queues() as vhost:
        queue = vhost.queue(kind="quorum")
        await queue.send("x", [Token(4)])
        await make_undeliverable(vhost)
        letter = await vhost.take("workflow.execution.dead")
        assert letter is not None
        death = {"x-death", "x-first-death-reason", "x-first-death-queue", "x-first-death-exchange"}
        assert set(letter.headers) >= death
        assert not set(letter.headers) & HEADERS
        assert letter.headers["x-first-death-reason"] == "delivery_limit"


@async_test
async def test_rejected_starts_of_equal_content_are_letters_of_their_own() -> None:
    async with vhost_queues() as vhost:
        queue = vhost.queue()
        await queue.check()

        async def take_nothing(message: NodeExecutionMessage, body: bytes) -> None:
            raise AssertionError("the message cannot be decoded")

        engine = LegacyExecutor(vhost.url, queue.topology, "one", take_nothing)
        engine.start()
        await engine.hand_over(b"no message")
        await engine.hand_over(b"no message")
        await until(lambda: _are_dead(vhost, 2))
        found = await DeadLetters(vhost.url, queue.topology).list()
        await engine.close()
        letter = await vhost.take("workflow.execution.dead")
        assert [(each.code, each.queue) for each in found] == [("BAD_MESSAGE", "workflow.execution")] * 2
        assert len({each.id for each in found}) == 2
        assert all(each.at is not None for each in found)
        assert letter is not None
        assert set(letter.headers) == HEADERS


async def _are_dead(vhost: VhostQueues, wanted: int) -> bool:
    return await vhost.waiting("workflow.execution.dead") == wanted
