"""Dead letters on the broker."""

from __future__ import annotations

from rune.adapters.rabbitmq.dead_letters import MAX_REQUEUES, DeadLetters
from rune.core.execution.token import Token
from tests.integration.rabbitmq.helping import scenario
from tests.integration.rabbitmq.queues import place, worn_out


@scenario
async def test_letters_are_listed_sent_again_and_removed() -> None:
    async with place() as here:
        queue = here.queue()
        await queue.send("x", [Token(0), Token(1), Token(2)], 9)
        for code in ("A", "B", "C"):
            await queue.dead_letter(await queue.receive(), code, f"because {code}")
        letters = DeadLetters(here.url, queue.topology)
        found = await letters.list()
        assert [(each.code, each.reason, each.execution) for each in found] == [
            ("A", "because A", "x"),
            ("B", "because B", "x"),
            ("C", "because C", "x"),
        ]
        assert {each.queue for each in found} == {"workflow.execution.high"}
        assert [each.code for each in await letters.list(2)] == ["A", "B"]
        assert await letters.discard(lambda letter: letter.code == "A") == 1
        assert await letters.requeue(lambda letter: letter.code == "C") == 1
        assert (await queue.receive()).token.node == 2
        assert [each.code for each in await letters.list()] == ["B"]


@scenario
async def test_what_was_only_delivered_too_often_comes_back_by_itself() -> None:
    async with place() as here:
        queue = here.queue(kind="quorum")
        await queue.send("x", [Token(4)])
        letters = DeadLetters(here.url, queue.topology)
        for turn in range(MAX_REQUEUES):
            await worn_out(here.url, "workflow.execution")
            (letter,) = await letters.list()
            assert (letter.code, letter.execution, letter.rescues) == ("DELIVERY_LIMIT", "x", turn)
            assert await letters.requeue_innocent() == 1
        delivery = await queue.receive()
        assert delivery.token == Token(4)
        await queue.requeue(delivery)
        await queue.close()


@scenario
async def test_what_comes_back_too_often_stays() -> None:
    async with place() as here:
        queue = here.queue(kind="quorum")
        await queue.send("x", [Token(4)])
        letters = DeadLetters(here.url, queue.topology)
        for _ in range(MAX_REQUEUES):
            await worn_out(here.url, "workflow.execution")
            await letters.requeue_innocent()
        await worn_out(here.url, "workflow.execution")
        assert await letters.requeue_innocent() == 0
        assert len(await letters.list()) == 1


@scenario
async def test_a_letter_that_is_not_a_message_is_shown_as_it_is() -> None:
    async with place() as here:
        queue = here.queue()
        await queue.check()
        await here.put("workflow.execution.dead", b"\xff noise")
        (letter,) = await DeadLetters(here.url, queue.topology).list()
        assert (letter.code, letter.execution, letter.body) == ("UNKNOWN", None, b"\xff noise")
        assert await DeadLetters(here.url, queue.topology).requeue_innocent() == 0
