"""Innocent dead letters are handed back by themselves, however often the broker is away."""

from __future__ import annotations

import asyncio

import pytest

from rune.adapters.rabbitmq.amqp.errors import BrokerUnavailableError
from rune.adapters.rabbitmq.dead_letters import SAME, requeue_innocent


class _Letters:
    """Away twice with the same reason, then there."""

    def __init__(self) -> None:
        self.looks = 0
        self.enough = asyncio.Event()

    async def count(self) -> int:
        return 7 + self.looks

    async def rescue(self) -> int:
        self.looks += 1
        if self.looks <= 2:
            raise BrokerUnavailableError("it sleeps")
        if self.looks == 4:
            self.enough.set()
        return 3 if self.looks == 3 else 0


def test_the_rescue_goes_on_and_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    async def go() -> None:
        letters = _Letters()
        rescuing = asyncio.create_task(requeue_innocent(letters, 0.0))  # type: ignore[arg-type]
        await letters.enough.wait()
        rescuing.cancel()
        await asyncio.gather(rescuing, return_exceptions=True)

    asyncio.run(go())
    said = [each.getMessage() for each in caplog.records]
    assert said == [
        "dead letters are not looked at: it sleeps",
        "3 messages that were only delivered too often were handed back",
    ]


class _Unchanged:
    """Letters that nobody can help, then one more."""

    def __init__(self) -> None:
        self.counted = self.taken = 0
        self.enough = asyncio.Event()

    async def count(self) -> int:
        self.counted += 1
        return 5 if self.counted < SAME else 6

    async def rescue(self) -> int:
        self.taken += 1
        if self.counted >= 2 * SAME:
            self.enough.set()
        return 0


def test_letters_are_left_alone_as_long_as_none_comes_or_goes() -> None:
    async def go() -> int:
        letters = _Unchanged()
        rescuing = asyncio.create_task(requeue_innocent(letters, 0.0))  # type: ignore[arg-type]
        await letters.enough.wait()
        rescuing.cancel()
        await asyncio.gather(rescuing, return_exceptions=True)
        return letters.taken

    assert asyncio.run(go()) == 3, "at first, when one more had come, and once in a while"
