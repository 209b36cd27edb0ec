"""Depth and age of queues."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rune.adapters.rabbitmq import queue as depths
from rune.adapters.rabbitmq.amqp.client import Connection, connect
from rune.adapters.rabbitmq.amqp.errors import BrokerUnavailableError
from rune.adapters.rabbitmq.queue import RabbitQueue
from rune.adapters.sqlite.queue import AGE_RESOLUTION_S, QueueAges
from rune.core.execution.token import Token
from rune.ports.inspection import QueueDepth
from tests.support.services.rabbitmq import broker


def test_depths_sum_all_lanes() -> None:
    async def work(url: str) -> list[list[QueueDepth]]:
        queue = RabbitQueue(url, queues=("default", "gpu"))
        await queue.check()
        found = [await queue.depths()]
        for priority in (9, 5, 1):
            await queue.send("x1", [Token(0)], priority)
        found.append(await queue.depths())
        await queue.close()
        return found

    server = broker()
    with server.vhost() as vhost:
        empty, full = asyncio.run(work(server.url(vhost)))
    assert empty == [QueueDepth(queue="default", waiting=0), QueueDepth(queue="gpu", waiting=0)]
    assert full == [QueueDepth(queue="default", waiting=3), QueueDepth(queue="gpu", waiting=0)]


def test_depths_reuse_connection_until_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    connections: list[Connection] = []

    async def counting_connect(*args: Any, **kwargs: Any) -> Connection:
        opened = await connect(*args, **kwargs)
        if kwargs.get("name") == "depths":
            connections.append(opened)
        return opened

    monkeypatch.setattr(depths, "connect", counting_connect)

    async def work(url: str) -> list[int]:
        queue = RabbitQueue(url)
        await queue.check()
        seen = []
        for _ in range(3):
            for both in await asyncio.gather(queue.depths(), queue.depths()):
                assert both == [QueueDepth(queue="default", waiting=0)]
            seen.append(len(connections))
            if len(seen) == 2:
                connections[-1].abort(BrokerUnavailableError("cut"))
        await queue.close()
        return seen

    server = broker()
    with server.vhost() as vhost:
        assert asyncio.run(work(server.url(vhost))) == [1, 1, 2]
    assert all(each.error is not None for each in connections), "close must end every connection"


class _Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_age_is_that_of_oldest_waiting_token() -> None:
    clock = _Clock()
    ages = QueueAges(clock)
    lanes: tuple[list[int], ...] = ([], [], [])

    def put(lane: int) -> None:
        ages.mark(lanes)
        ages.put[lane] += 1
        lanes[lane].append(0)

    assert ages.oldest(lanes) == 0
    put(1)
    clock.now += 10
    put(1)
    put(2)
    clock.now += 5
    assert ages.oldest(lanes) == 15
    lanes[1].pop()
    assert ages.oldest(lanes) == 5
    lanes[1].pop()
    lanes[2].pop()
    assert ages.oldest(lanes) == 0
    clock.now += AGE_RESOLUTION_S
    put(0)
    clock.now += 1
    assert ages.oldest(lanes) == 1
