"""Contract of queues: tokens may be duplicated and reordered, but not lost."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager, suppress
from pathlib import Path

from rune.core.execution.token import Token
from rune.ports.queue import Queue
from tests.support.async_test import async_test

HIGH, NORMAL, LOW = 9, 5, 1
FAIR = 64
"""Every non-empty lane gets at least one of this many deliveries."""


class QueueContract:
    """Subclasses create a queue."""

    def make_queue(self, folder: Path) -> AbstractAsyncContextManager[Queue]:
        raise NotImplementedError

    @async_test
    async def test_each_token_is_delivered_once(self, tmp_path: Path) -> None:
        async with self.make_queue(tmp_path) as queue:
            await queue.send("x", [Token(node) for node in range(100)])
            await queue.send("y", [Token(0)])
            seen = []
            for _ in range(101):
                delivery = await queue.receive()
                await queue.ack(delivery)
                seen.append((delivery.execution, delivery.token.node))
            assert sorted(seen) == [*(("x", node) for node in range(100)), ("y", 0)]
            assert await self._is_empty(queue)

    @async_test
    async def test_waiting_receivers_get_sent_tokens(self, tmp_path: Path) -> None:
        async with self.make_queue(tmp_path) as queue:
            waiting = [asyncio.create_task(queue.receive()) for _ in range(10)]
            await asyncio.sleep(0)
            await queue.send("x", [Token(node) for node in range(10)])
            received = await asyncio.gather(*waiting)
            assert sorted(each.token.node for each in received) == list(range(10))

    @async_test
    async def test_token_round_trips_unchanged(self, tmp_path: Path) -> None:
        async with self.make_queue(tmp_path) as queue:
            token = Token(3, (1, 2, 4, 0), attempt=2, resumed=True, at=17)
            await queue.send("x", [token])
            delivery = await queue.receive()
            assert delivery.token == token

    @async_test
    async def test_requeued_token_is_delivered_again(self, tmp_path: Path) -> None:
        async with self.make_queue(tmp_path) as queue:
            await queue.send("x", [Token(7)])
            await queue.requeue(await queue.receive())
            again = await queue.receive()
            assert (again.execution, again.token.node) == ("x", 7)
            await queue.ack(again)
            assert await self._is_empty(queue)

    @async_test
    async def test_dead_lettered_token_is_not_delivered_again(self, tmp_path: Path) -> None:
        async with self.make_queue(tmp_path) as queue:
            await queue.send("x", [Token(7)])
            await queue.dead_letter(await queue.receive(), "CODE", "no worker serves it")
            assert await self._is_empty(queue)

    @async_test
    async def test_delayed_requeue_lets_other_tokens_pass(self, tmp_path: Path) -> None:
        async with self.make_queue(tmp_path) as queue:
            await queue.send("x", [Token(1)])
            await queue.requeue(await queue.receive(), 0.05)
            await queue.send("x", [Token(2)])
            first = await queue.receive()
            second = await queue.receive()
            assert (first.token.node, second.token.node) == (2, 1)

    @async_test
    async def test_no_priority_lane_starves(self, tmp_path: Path) -> None:
        async with self.make_queue(tmp_path) as queue:
            await queue.send("low", [Token(0)], LOW)
            await queue.send("normal", [Token(0)], NORMAL)
            seen = []
            for node in range(FAIR):
                await queue.send("high", [Token(node)], HIGH)
                seen.append((await queue.receive()).execution)
            assert {"low", "normal", "high"} == set(seen)

    @async_test
    async def test_fan_out_items_do_not_delay_other_executions(self, tmp_path: Path) -> None:
        async with self.make_queue(tmp_path) as queue:
            await queue.send("many", [Token(1, (0, item)) for item in range(60)])
            await queue.send("one", [Token(1)])
            seen = [(await queue.receive()).execution for _ in range(61)]
            assert seen.index("one") < 5, "delayed by the fan-out items"
            assert seen.count("many") == 60

    @async_test
    async def test_high_priority_is_delivered_first(self, tmp_path: Path) -> None:
        async with self.make_queue(tmp_path) as queue:
            await queue.send("low", [Token(node) for node in range(40)], LOW)
            await queue.send("high", [Token(node) for node in range(40)], HIGH)
            early = [(await queue.receive()).execution for _ in range(40)]
            assert early.count("high") > early.count("low")

    @async_test
    async def test_cancelled_receive_loses_no_token(self, tmp_path: Path) -> None:
        async with self.make_queue(tmp_path) as queue:
            receivers = [asyncio.create_task(queue.receive()) for _ in range(5)]
            await asyncio.sleep(0)
            await queue.send("x", [Token(node) for node in range(5)])
            for receiver in receivers[:4]:
                receiver.cancel()
            received = []
            for receiver in receivers:
                with suppress(asyncio.CancelledError):
                    received.append((await receiver).token.node)
            while len(received) < 5:
                received.append((await queue.receive()).token.node)
            assert sorted(received) == list(range(5))

    @async_test
    async def test_paused_queue_delivers_after_it_is_resumed(self, tmp_path: Path) -> None:
        async with self.make_queue(tmp_path) as queue:
            await queue.send("x", [Token(node) for node in range(20)])
            first = await queue.receive()
            waiting = [asyncio.create_task(queue.receive()) for _ in range(3)]
            await queue.pause()
            await queue.pause()
            await queue.send("x", [Token(20)])
            await queue.ack(first)
            late = asyncio.create_task(queue.receive())
            for _ in range(20):
                await asyncio.sleep(0)
            assert not late.done()

            await queue.resume()
            seen = {first.token.node}
            received = [await each for each in (*waiting, late)]
            while received or len(seen) < 21:
                delivery = received.pop() if received else await queue.receive()
                await queue.ack(delivery)
                seen.add(delivery.token.node)
            assert seen == set(range(21))

    @async_test
    async def test_more_items_of_a_node_are_delivered_once(self, tmp_path: Path) -> None:
        """`receive_more` may return fewer than there are; what it leaves is received, and nothing twice."""
        async with self.make_queue(tmp_path) as queue:
            items = [Token(3, (1, item)) for item in range(20)]
            await queue.send("x", items)
            await queue.send("x", [Token(4, (1, 0))])
            await queue.send("y", [Token(3, (1, 0))])
            seen: list[tuple[str, Token]] = []
            while len(seen) < 22:
                first = await queue.receive()
                more = await queue.receive_more(first, 7)
                assert len(more) <= 7
                for each in more:
                    assert (each.execution, each.token.node) == (first.execution, first.token.node)
                for each in (first, *more):
                    await queue.ack(each)
                    seen.append((each.execution, each.token))
            expected = [*(("x", each) for each in items), ("x", Token(4, (1, 0))), ("y", Token(3, (1, 0)))]
            assert sorted(seen, key=str) == sorted(expected, key=str)
            assert await self._is_empty(queue)

    @async_test
    async def test_paused_queue_delivers_nothing_more(self, tmp_path: Path) -> None:
        async with self.make_queue(tmp_path) as queue:
            await queue.send("x", [Token(3, (1, item)) for item in range(5)])
            first = await queue.receive()
            await queue.pause()
            assert await queue.receive_more(first, 4) == []

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
