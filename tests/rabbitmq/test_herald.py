"""Statuses while the broker takes none: the newest are kept, the oldest dropped, and their order stays."""

from __future__ import annotations

import asyncio
from typing import Any

from rune.adapters.rabbitmq.herald import PAUSE, RabbitHerald
from rune.adapters.rabbitmq.topology import Topology


class _Link:
    started = 0

    def start(self) -> None:
        self.started += 1


class _Publisher:
    """Takes messages if it is up."""

    def __init__(self) -> None:
        self.up = False
        self.taken: list[bytes] = []
        self.last = asyncio.Event()
        self.link = _Link()

    def post(self, exchange: str, routing_key: str, body: bytes, stamp: Any) -> bool:
        if self.up:
            self.taken.append(body)
            if body == b"9":
                self.last.set()
        return self.up


class _Nobody:
    async def close(self) -> None:
        pass


def _said(most: int) -> list[bytes]:
    """What arrives of statuses 0 to 9, of which the last is said when the broker is back."""
    publisher = _Publisher()

    async def speak() -> None:
        herald = RabbitHerald(publisher, Topology(), _Nobody(), most)  # type: ignore[arg-type]
        for number in range(9):
            herald.say(b"%d" % number)
        publisher.up = True
        herald.say(b"9")
        async with asyncio.timeout(50 * PAUSE):
            await publisher.last.wait()
        await herald.close()

    asyncio.run(speak())
    assert publisher.link.started == 1, "nobody else may have asked for a connection yet"
    return publisher.taken


def test_what_was_kept_is_told_in_order_and_before_what_is_newer() -> None:
    everything = [b"%d" % number for number in range(10)]
    assert _said(most=100) == everything


def test_the_oldest_are_dropped() -> None:
    newest = [b"7", b"8", b"9"]
    assert _said(most=3) == newest
