"""Innocent dead letters are handed back by themselves, however often the broker is away."""

from __future__ import annotations

import asyncio

import pytest

from rune.adapters.rabbitmq.amqp.errors import BrokerUnavailableError
from rune.adapters.rabbitmq.dead_letters import MAX_UNCHANGED_CHECKS, requeue_innocent


class _Letters:
    """Away twice with the same reason, then there."""

    def __init__(self) -> None:
        self.looks = 0
        self.enough = asyncio.Event()

    async def count(self) -> int:
        return 7 + self.looks

    async def requeue_innocent(self) -> int:
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
        "dead letters could not be checked: it sleeps",
        "requeued 3 messages that only exceeded the delivery limit",
    ]


class _Unchanged:
    """Letters that nobody can help, then one more."""

    def __init__(self) -> None:
        self.counted = self.taken = 0
        self.enough = asyncio.Event()

    async def count(self) -> int:
        self.counted += 1
        return 5 if self.counted < MAX_UNCHANGED_CHECKS else 6

    async def requeue_innocent(self) -> int:
        self.taken += 1
        if self.counted >= 2 * MAX_UNCHANGED_CHECKS:
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
