"""What every queue promises: it may double and reorder, but within one healthy process it loses nothing."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager, suppress
from pathlib import Path

from rune.core.execution.token import Token
from rune.ports.queue import Queue
from tests.contract.suites.scenario import scenario

HIGH, NORMAL, LOW = 9, 5, 1
FAIR = 64
"""Of so many deliveries at least one comes from each lane that has any."""


class QueueContract:
    """Subclass it and make a queue."""

    def make_queue(self, folder: Path) -> AbstractAsyncContextManager[Queue]:
        raise NotImplementedError

    @scenario
    async def test_each_hint_is_delivered_and_only_once(self, folder: Path) -> None:
        async with self.make_queue(folder) as queue:
            await queue.send("x", [Token(node) for node in range(100)])
            await queue.send("y", [Token(0)])
            seen = []
            for _ in range(101):
                delivery = await queue.receive()
                await queue.ack(delivery)
                seen.append((delivery.execution, delivery.token.node))
            assert sorted(seen) == [*(("x", node) for node in range(100)), ("y", 0)]
            assert await self._is_empty(queue)

    @scenario
    async def test_whoever_waits_gets_what_comes(self, folder: Path) -> None:
        async with self.make_queue(folder) as queue:
            waiting = [asyncio.create_task(queue.receive()) for _ in range(10)]
            await asyncio.sleep(0)
            await queue.send("x", [Token(node) for node in range(10)])
            got = await asyncio.gather(*waiting)
            assert sorted(each.token.node for each in got) == list(range(10))

    @scenario
    async def test_a_token_arrives_as_it_was_sent(self, folder: Path) -> None:
        async with self.make_queue(folder) as queue:
            token = Token(3, (1, 2, 4, 0), attempt=2, resumed=True, at=17)
            await queue.send("x", [token])
            delivery = await queue.receive()
            assert delivery.token == token

    @scenario
    async def test_what_is_given_back_comes_again(self, folder: Path) -> None:
        async with self.make_queue(folder) as queue:
            await queue.send("x", [Token(7)])
            await queue.requeue(await queue.receive())
            again = await queue.receive()
            assert (again.execution, again.token.node) == ("x", 7)
            await queue.ack(again)
            assert await self._is_empty(queue)

    @scenario
    async def test_what_is_put_aside_comes_no_more(self, folder: Path) -> None:
        async with self.make_queue(folder) as queue:
            await queue.send("x", [Token(7)])
            await queue.dead_letter(await queue.receive(), "CODE", "nobody can serve it")
            assert await self._is_empty(queue)

    @scenario
    async def test_what_is_given_back_for_later_lets_others_pass(self, folder: Path) -> None:
        async with self.make_queue(folder) as queue:
            await queue.send("x", [Token(1)])
            await queue.requeue(await queue.receive(), 0.05)
            await queue.send("x", [Token(2)])
            first = await queue.receive()
            second = await queue.receive()
            assert (first.token.node, second.token.node) == (2, 1)

    @scenario
    async def test_no_lane_starves(self, folder: Path) -> None:
        async with self.make_queue(folder) as queue:
            await queue.send("low", [Token(0)], LOW)
            await queue.send("normal", [Token(0)], NORMAL)
            seen = []
            for node in range(FAIR):
                await queue.send("high", [Token(node)], HIGH)
                seen.append((await queue.receive()).execution)
            assert {"low", "normal", "high"} == set(seen)

    @scenario
    async def test_items_of_a_fan_out_let_others_pass(self, folder: Path) -> None:
        async with self.make_queue(folder) as queue:
            await queue.send("many", [Token(1, (0, item)) for item in range(60)])
            await queue.send("one", [Token(1)])
            seen = [(await queue.receive()).execution for _ in range(61)]
            assert seen.index("one") < 5, "it waited for the items"
            assert seen.count("many") == 60

    @scenario
    async def test_high_priority_goes_first(self, folder: Path) -> None:
        async with self.make_queue(folder) as queue:
            await queue.send("low", [Token(node) for node in range(40)], LOW)
            await queue.send("high", [Token(node) for node in range(40)], HIGH)
            early = [(await queue.receive()).execution for _ in range(40)]
            assert early.count("high") > early.count("low")

    @scenario
    async def test_a_cancelled_receiver_loses_nothing(self, folder: Path) -> None:
        async with self.make_queue(folder) as queue:
            receivers = [asyncio.create_task(queue.receive()) for _ in range(5)]
            await asyncio.sleep(0)
            await queue.send("x", [Token(node) for node in range(5)])
            for receiver in receivers[:4]:
                receiver.cancel()
            got = []
            for receiver in receivers:
                with suppress(asyncio.CancelledError):
                    got.append((await receiver).token.node)
            while len(got) < 5:
                got.append((await queue.receive()).token.node)
            assert sorted(got) == list(range(5))

    async def _is_empty(self, queue: Queue) -> bool:
        receiver = asyncio.create_task(queue.receive())
        for _ in range(5):
            await asyncio.sleep(0)
        if receiver.done():
            return False
        receiver.cancel()
        with suppress(asyncio.CancelledError):
            await receiver
        return True
