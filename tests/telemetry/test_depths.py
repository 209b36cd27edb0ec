"""Each queue tells how much waits in it."""

from __future__ import annotations

import asyncio

from rune.adapters.embedded.ages import STEP, Ages
from rune.adapters.rabbitmq.queue import RabbitQueue
from rune.core.token import Token
from rune.ports.telemetry import Depth
from tests.services.rabbitmq import broker


def test_a_broker_tells_how_much_waits_in_every_lane() -> None:
    async def work(url: str) -> list[list[Depth]]:
        queue = RabbitQueue(url, queues=("default", "gpu"))
        await queue.check()
        found = [await queue.depths()]
        for priority in (9, 5, 1):
            await queue.send("x1", [Token(0)], priority)
        found.append(await queue.depths())
        await queue.close()
        return found

    held = broker()
    with held.vhost() as place:
        empty, full = asyncio.run(work(held.url(place)))
    assert empty == [Depth(queue="default", waiting=0), Depth(queue="gpu", waiting=0)]
    assert full == [Depth(queue="default", waiting=3), Depth(queue="gpu", waiting=0)]


class _Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_the_age_is_that_of_the_oldest_that_waits_in_any_lane() -> None:
    clock = _Clock()
    ages = Ages(clock)
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
    clock.now += STEP
    put(0)
    clock.now += 1
    assert ages.oldest(lanes) == 1
