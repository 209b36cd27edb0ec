"""Batches of concurrent requests: who bypasses, who waits, and who gets which answer."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from rune.batcher import Answers, Batcher, KeyedBatcher, SharedAnswer
from rune.ports.journal import StoreUnavailableError


class Sender:
    """Records what is sent together; every batch waits for `go`."""

    def __init__(self, *, shared: bool = False, error: Exception | None = None) -> None:
        self.batches: list[list[int]] = []
        self.go = asyncio.Event()
        self._shared = shared
        self._error = error

    async def send(self, requests: Sequence[int]) -> Answers[int]:
        self.batches.append(list(requests))
        await self.go.wait()
        if self._error is not None and len(self.batches) > 1:
            raise self._error
        return SharedAnswer(sum(requests), 0) if self._shared else [10 * each for each in requests]

    async def send_keyed(self, key: str, requests: Sequence[int]) -> Answers[int]:
        return await self.send(requests)


def test_single_call_creates_no_task() -> None:
    async def go() -> None:
        sender = Sender()
        sender.go.set()
        before = asyncio.all_tasks()
        batcher: Batcher[int, int] = Batcher(sender.send, max_requests=2)
        assert await batcher.call(1) == 10
        assert asyncio.all_tasks() == before

    asyncio.run(go())


def test_calls_meanwhile_form_next_batches() -> None:
    async def go() -> None:
        sender = Sender()
        batcher: KeyedBatcher[str, int, int] = KeyedBatcher(sender.send_keyed, max_requests=2, lanes=2)
        calls = [asyncio.create_task(batcher.call("a", number)) for number in range(6)]
        other = asyncio.create_task(batcher.call("b", 9))
        await asyncio.sleep(0)
        assert sender.batches == [[0], [9]]
        sender.go.set()
        assert await asyncio.gather(*calls, other) == [0, 10, 20, 30, 40, 50, 90]
        assert sender.batches[2:] == [[1, 2], [3, 4], [5]]
        assert not batcher._batchers, "nothing is kept of an idle key"

    asyncio.run(go())


def test_error_reaches_every_caller_of_the_batch() -> None:
    async def go() -> None:
        sender = Sender(error=ValueError("no"))
        batcher: Batcher[int, int] = Batcher(sender.send, max_requests=9)
        calls = [asyncio.create_task(batcher.call(number)) for number in range(3)]
        await asyncio.sleep(0)
        sender.go.set()
        found = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(each) for each in found] == [int, ValueError, ValueError]

    asyncio.run(go())


@pytest.mark.parametrize("late", [False, True])
def test_shared_answer_goes_to_last_caller_that_waits(late: bool) -> None:
    async def go() -> None:
        sender = Sender(shared=True)
        batcher: KeyedBatcher[str, int, int] = KeyedBatcher(sender.send_keyed, max_requests=9)
        calls = [asyncio.create_task(batcher.call("a", number)) for number in range(4)]
        await asyncio.sleep(0)
        if late:
            sender.go.set()
            await calls[0]
            sender.go.clear()
            await asyncio.sleep(0)
            assert sender.batches[1:] == [[1, 2, 3]]
        calls[3].cancel()
        sender.go.set()
        found = await asyncio.gather(*calls, return_exceptions=True)
        assert found[:3] == [0, 0, 6 if late else 3]
        assert isinstance(found[3], asyncio.CancelledError)
        assert not batcher._batchers

    asyncio.run(go())


def test_callers_of_cancelled_batch_get_unavailable_store() -> None:
    async def go() -> None:
        sender = Sender()
        batcher: Batcher[int, int] = Batcher(sender.send, max_requests=9)
        waiting = batcher.submit(1)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        (task,) = batcher._tasks
        task.cancel()
        await asyncio.wait([task])
        with pytest.raises(StoreUnavailableError):
            await waiting

    asyncio.run(go())
