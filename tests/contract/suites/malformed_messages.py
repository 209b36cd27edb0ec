"""Contract of queues that read bytes: no message ends a consumer; one that cannot be read becomes a dead letter."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from random import Random
from typing import Any

import pytest

from rune.core.execution.token import Token
from rune.ports.queue import DeadLetterQueue
from tests.support.async_test import async_test
from tests.support.waiting import until

MESSAGES = 20_000
BATCH = 2_000
SLOTS = 50
LAST = "last"
"""The execution whose token is sent after all malformed messages."""

PIECES = (
    b"\xff",
    b"\xc3",
    b"\xed\xa0\x80",
    b"\x00",
    b'"',
    b"{",
    b"[" * 3_000,
    b'{"a":' * 3_000,
    b"\\ud800",
    b"9" * 400,
    b"1e999",
    b"-1",
    b"null",
    b"\xc1",
    b"\xdf\xff\xff\xff\xff",
    b"\x91" * 3_000,
)


def mutated(random: Random, body: bytes) -> bytes:
    """Return a body with one to four random changes."""
    for _ in range(random.randint(1, 4)):
        at = random.randint(0, len(body))
        to = min(len(body), at + random.randint(0, 12))
        match random.randint(0, 5):
            case 0:
                body = body[:at] + bytes((random.randint(0, 255),)) + body[at + 1 :]
            case 1:
                body = body[:at]
            case 2:
                body = body[:at] + random.choice(PIECES) + body[to:]
            case 3:
                body = body[:at] + body[to:]
            case 4:
                body = body[:at] + body[at:to] * random.randint(2, 5) + body[to:]
            case _:
                body = random.randbytes(random.randint(0, 60)) + body[at:]
    return body


class MalformedMessageContract:
    """Subclasses create a queue and its dead letters, and put messages into the queue past `send`."""

    def make_stores(self, folder: Path) -> AbstractAsyncContextManager[tuple[Any, DeadLetterQueue]]:
        raise NotImplementedError

    def valid_bodies(self) -> Sequence[bytes]:
        """Return valid messages to mutate."""
        raise NotImplementedError

    async def put(self, queue: Any, bodies: Sequence[bytes]) -> None:
        raise NotImplementedError

    async def count_unsettled(self, queue: Any) -> int:
        """Return how many messages are in the queue or held by a consumer."""
        raise NotImplementedError

    max_letters: int = MESSAGES

    @pytest.mark.long
    @async_test
    async def test_queue_delivers_after_any_message(self, tmp_path: Path) -> None:
        random = Random(35)
        valid = self.valid_bodies()
        async with self.make_stores(tmp_path) as (queue, letters):
            await queue.send("warm-up", [Token(0)])
            await queue.ack(await queue.receive())
            for _ in range(0, MESSAGES, BATCH):
                await self.put(queue, [mutated(random, random.choice(valid)) for _ in range(BATCH)])
            await queue.send(LAST, [Token(7)])
            last: list[Token] = []
            delivered = 0

            async def serve() -> None:
                nonlocal delivered
                while True:
                    delivery = await queue.receive()
                    await queue.ack(delivery)
                    delivered += delivery.execution != LAST
                    last.extend([delivery.token] if delivery.execution == LAST else [])

            slots = [asyncio.create_task(serve()) for _ in range(SLOTS)]
            await until(lambda: last or any(each.done() for each in slots), "the last message is delivered")
            assert last == [Token(7)]

            async def settled() -> bool:
                return await self.count_unsettled(queue) == 0

            await until(settled, "no message is left")
            assert not any(each.done() for each in slots), "an error left `receive`"
            for each in slots:
                each.cancel()
            assert delivered < MESSAGES / 2, "the mutator changes too little"
            assert await letters.count() == min(MESSAGES - delivered, self.max_letters)
            for letter in await letters.list(100):
                assert letter.code
                assert letter.reason
                assert letter.at is not None

    @async_test
    async def test_malformed_message_does_not_stop_others_of_its_batch(self, tmp_path: Path) -> None:
        async with self.make_stores(tmp_path) as (queue, letters):
            await queue.send("before", [Token(1)])
            await self.put(queue, [b"\xff"])
            await queue.send("behind", [Token(2)])
            received = [await queue.receive() for _ in range(2)]
            assert sorted(each.execution for each in received) == ["before", "behind"]
            assert await _one_letter(letters)

    @async_test
    async def test_requeued_letter_is_delivered_and_dropped_one_is_gone(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        async with self.make_stores(tmp_path) as (queue, letters):
            for code in ("FIRST", "SECOND"):
                await queue.send("x", [Token(7)])
                await queue.dead_letter(await queue.receive(), code, "no worker serves it")
            logged = [each.getMessage() for each in caplog.records if "is a dead letter" in each.getMessage()]
            assert [" of x on " in each for each in logged] == [True, True], "the execution is named"
            await _until_count(letters, 2)
            first, second = await letters.list()
            assert [(each.code, each.reason, each.execution) for each in (first, second)] == [
                ("FIRST", "no worker serves it", "x"),
                ("SECOND", "no worker serves it", "x"),
            ]
            assert await letters.discard(first.id) == 1
            assert await letters.requeue(second.id) == 1
            delivery = await queue.receive()
            assert (delivery.execution, delivery.token) == ("x", Token(7))
            await _until_count(letters, 0)

    def named_body(self) -> bytes:
        """Return a malformed message that names the execution `x`."""
        raise NotImplementedError

    @async_test
    async def test_log_line_and_letter_of_malformed_message_name_its_execution(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        async with self.make_stores(tmp_path) as (queue, letters):
            await self.put(queue, [b"\xff", self.named_body()])
            waiting = asyncio.create_task(queue.receive())

            async def both() -> bool:
                return await letters.count() == 2

            await until(both, "both are dead letters")
            waiting.cancel()
            logged = [each.getMessage() for each in caplog.records if "is a dead letter" in each.getMessage()]
            assert sum(" of x on " in each for each in logged) == 1
            assert sum(" of an unknown execution on " in each for each in logged) == 1
            assert sorted(each.execution or "" for each in await letters.list()) == ["", "x"]


async def _until_count(letters: DeadLetterQueue, count: int) -> None:
    """Wait for a number of dead letters. A broker may show a letter, or its end, a moment after it confirmed it."""

    async def reached() -> bool:
        return await letters.count() == count

    await until(reached, f"there are {count} dead letters")


async def _one_letter(letters: DeadLetterQueue) -> bool:
    """Wait for a dead letter; return whether it is the only one and has a reason and a time."""

    async def found() -> bool:
        return await letters.count() > 0

    await until(found, "there is a dead letter")
    (letter,) = await letters.list()
    return bool(letter.reason) and letter.at is not None
