"""Backoff of the reconnecting connection."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rune.adapters.rabbitmq.amqp import client
from rune.adapters.rabbitmq.amqp.errors import BrokerUnavailableError

ATTEMPTS = 12


def _pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the pauses between attempts to reach a missing broker."""
    pauses: list[float] = []
    enough = asyncio.Event()
    sleep = asyncio.sleep

    async def fail_to_connect(*args: Any, **kwargs: Any) -> Any:
        raise BrokerUnavailableError("connection refused")

    async def record_pause(pause: float) -> None:
        pauses.append(pause)
        if len(pauses) == ATTEMPTS:
            enough.set()
        await sleep(0)

    async def prepare(connection: Any) -> None:
        raise AssertionError("never connected")

    async def go() -> None:
        connection = client.ReconnectingConnection("amqp://nowhere", "test", prepare)
        connection.start()
        await enough.wait()
        await connection.close()

    monkeypatch.setattr(client, "connect", fail_to_connect)
    with monkeypatch.context() as patched:
        patched.setattr(asyncio, "sleep", record_pause)
        asyncio.run(go())
    return pauses[:ATTEMPTS]


def test_reconnect_backoff_grows_to_limit_with_jitter(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = _pauses(monkeypatch), _pauses(monkeypatch)
    longest = [min(client.MIN_BACKOFF_S * 2**turn, client.MAX_BACKOFF_S) for turn in range(ATTEMPTS)]
    for found in (first, second):
        assert all(most / 2 <= each <= most for each, most in zip(found, longest, strict=True))
    assert first != second, "processes must not reconnect at the same moment"
