"""Automatic requeue of dead letters that only exceeded the delivery limit."""

from __future__ import annotations

import asyncio

import pytest

from rune.adapters.rabbitmq.amqp.errors import BrokerUnavailableError
from rune.adapters.rabbitmq.dead_letters import MAX_UNCHANGED_CHECKS, requeue_innocent


class _FailingTwice:
    """Unavailable twice with the same error, then available."""

    def __init__(self) -> None:
        self.checks = 0
        self.done = asyncio.Event()

    async def count(self) -> int:
        return 7 + self.checks

    async def requeue_innocent(self) -> int:
        self.checks += 1
        if self.checks <= 2:
            raise BrokerUnavailableError("broker is down")
        if self.checks == 4:
            self.done.set()
        return 3 if self.checks == 3 else 0


def test_requeue_continues_after_outage_and_logs_once(caplog: pytest.LogCaptureFixture) -> None:
    async def go() -> None:
        letters = _FailingTwice()
        requeueing = asyncio.create_task(requeue_innocent(letters, 0.0))  # type: ignore[arg-type]
        await letters.done.wait()
        requeueing.cancel()
        await asyncio.gather(requeueing, return_exceptions=True)

    asyncio.run(go())
    logged = [each.getMessage() for each in caplog.records]
    assert logged == [
        "dead letters could not be checked: broker is down",
        "requeued 3 messages that only exceeded the delivery limit",
    ]


class _Unchanged:
    """Dead letters that stay, then one more."""

    def __init__(self) -> None:
        self.counts = self.requeues = 0
        self.done = asyncio.Event()

    async def count(self) -> int:
        self.counts += 1
        return 5 if self.counts < MAX_UNCHANGED_CHECKS else 6

    async def requeue_innocent(self) -> int:
        self.requeues += 1
        if self.counts >= 2 * MAX_UNCHANGED_CHECKS:
            self.done.set()
        return 0


def test_unchanged_dead_letters_are_checked_rarely() -> None:
    async def go() -> int:
        letters = _Unchanged()
        requeueing = asyncio.create_task(requeue_innocent(letters, 0.0))  # type: ignore[arg-type]
        await letters.done.wait()
        requeueing.cancel()
        await asyncio.gather(requeueing, return_exceptions=True)
        return letters.requeues

    assert asyncio.run(go()) == 3, "once at first, once after the new letter, once periodically"
