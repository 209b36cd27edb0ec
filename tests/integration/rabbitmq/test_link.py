"""How a lost connection is made anew: ever later, and not by everybody at once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rune.adapters.rabbitmq.amqp import client
from rune.adapters.rabbitmq.amqp.errors import BrokerUnavailableError

TRIES = 12


def _pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long a link waits between its tries to reach a broker that is not there."""
    pauses: list[float] = []
    enough = asyncio.Event()
    sleep = asyncio.sleep

    async def nobody(*given: Any, **named: Any) -> Any:
        raise BrokerUnavailableError("nobody is there")

    async def noted(pause: float) -> None:
        pauses.append(pause)
        if len(pauses) == TRIES:
            enough.set()
        await sleep(0)

    async def prepare(connection: Any) -> None:
        raise AssertionError("there is no connection")

    async def go() -> None:
        made = client.ReconnectingConnection("amqp://nowhere", "test", prepare)
        made.start()
        await enough.wait()
        await made.close()

    monkeypatch.setattr(client, "connect", nobody)
    with monkeypatch.context() as patched:
        patched.setattr(asyncio, "sleep", noted)
        asyncio.run(go())
    return pauses[:TRIES]


def test_pauses_grow_to_a_limit_and_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = _pauses(monkeypatch), _pauses(monkeypatch)
    longest = [min(client.MIN_BACKOFF_S * 2**turn, client.MAX_BACKOFF_S) for turn in range(TRIES)]
    for found in (first, second):
        assert all(most / 2 <= each <= most for each, most in zip(found, longest, strict=True))
    assert first != second, "two processes that lost the broker together do not come back together"
