"""Batching of writes, without a database."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from rune.adapters.postgres.database import DatabaseRefusedError, OutOfLocksError, splitting
from rune.adapters.postgres.journal_writes import FactRun, fact_batch
from rune.batcher import Batcher
from rune.core.execution.fact import ExecutionEnded, Fact, PauseChanged
from rune.ports.journal import StoreUnavailableError
from tests.contract.suites.records import result
from tests.support.async_test import async_test


class RecordingBatcher:
    """Records the batches; each waits until its gate opens."""

    def __init__(
        self, lanes: int = 1, most: int = 100, bad: str = "", error: Callable[[], Exception] = Exception
    ) -> None:
        self.batches: list[list[str]] = []
        self.gates: list[asyncio.Event] = []
        self.started = asyncio.Event()
        self.open = False
        self._bad = bad
        self._error = error
        self.work: Batcher[str, str] = Batcher(
            splitting(self._write),
            max_requests=most,
            lanes=lanes,
            names=lambda name: (name,),
        )

    async def _write(self, batch: Sequence[str]) -> list[str]:
        self.batches.append(list(batch))
        gate = asyncio.Event()
        self.gates.append(gate)
        self.started.set()
        if not self.open:
            await gate.wait()
        if self._bad and any(each.startswith(self._bad) for each in batch):
            raise self._error()
        return list(batch)

    def submit(self, *names: str) -> list[asyncio.Future[Any]]:
        return [self.work.submit(name) for name in names]

    async def next_batch(self) -> list[str]:
        """Wait for the next batch and return it."""
        await self.started.wait()
        self.started.clear()
        return self.batches[-1]


@async_test
async def test_first_item_is_written_at_once_and_later_ones_are_batched() -> None:
    batcher = RecordingBatcher()
    batcher.submit("a")
    assert await batcher.next_batch() == ["a"]
    batcher.submit("b", "c")
    batcher.submit("d")
    batcher.gates[0].set()
    assert await batcher.next_batch() == ["b", "c", "d"]
    batcher.open = True
    batcher.gates[1].set()
    await batcher.work.close()
    assert len(batcher.batches) == 2


@async_test
async def test_items_submitted_together_form_one_batch() -> None:
    batcher = RecordingBatcher()
    batcher.open = True
    answers = await asyncio.gather(*batcher.submit("a", "b", "c"))
    assert answers == ["a", "b", "c"]
    assert batcher.batches == [["a", "b", "c"]]


@async_test
async def test_free_lane_writes_unrelated_items() -> None:
    batcher = RecordingBatcher(lanes=2)
    batcher.submit("a")
    await batcher.next_batch()
    batcher.submit("a", "b")
    assert await batcher.next_batch() == ["b"]
    batcher.gates[1].set()
    batcher.gates[0].set()
    assert await batcher.next_batch() == ["a"]
    batcher.gates[2].set()
    await batcher.work.close()


@async_test
async def test_batch_size_is_limited() -> None:
    batcher = RecordingBatcher(most=2)
    batcher.open = True
    await asyncio.gather(*batcher.submit(*"abcde"))
    assert batcher.batches == [["a", "b"], ["c", "d"], ["e"]]


@pytest.mark.parametrize("error", [DatabaseRefusedError, OutOfLocksError, RuntimeError])
@async_test
async def test_failing_item_is_isolated_and_others_are_written(error: type[Exception]) -> None:
    batcher = RecordingBatcher(bad="x", error=lambda: error("no"))
    batcher.open = True
    answers = await asyncio.gather(
        *batcher.submit("a", "b", "x1", "c", "d", "x2", "e"), return_exceptions=True
    )
    assert [each if isinstance(each, str) else type(each) for each in answers] == [
        "a", "b", error, "c", "d", error, "e",
    ]  # fmt: skip


@async_test
async def test_unavailable_store_fails_whole_batch() -> None:
    batcher = RecordingBatcher(bad="x", error=lambda: StoreUnavailableError("gone"))
    batcher.open = True
    answers = await asyncio.gather(*batcher.submit("a", "x", "b"), return_exceptions=True)
    assert [type(each) for each in answers] == [StoreUnavailableError] * 3
    assert batcher.batches == [["a", "x", "b"]]


@async_test
async def test_cancelled_item_is_not_written() -> None:
    batcher = RecordingBatcher()
    batcher.submit("a")
    await batcher.next_batch()
    gone, _ = batcher.submit("b", "c")
    gone.cancel()
    batcher.gates[0].set()
    assert await batcher.next_batch() == ["c"]
    batcher.gates[1].set()
    await batcher.work.close()


@async_test
async def test_submit_after_close_is_rejected() -> None:
    batcher = RecordingBatcher()
    (before,) = batcher.submit("a")
    closing = asyncio.create_task(batcher.work.close())
    await batcher.next_batch()
    (late,) = batcher.submit("b")
    batcher.gates[0].set()
    await closing
    assert await before == "a"
    with pytest.raises(StoreUnavailableError):
        await late


@async_test
async def test_fact_batch_admits_each_fact_once_and_end_last() -> None:
    admits = fact_batch()
    facts: list[tuple[str, list[Fact], bool]] = [
        ("x", [result(1)], True),
        ("x", [result(1, b"2")], False),
        ("y", [result(1)], True),
        ("x", [result(2), result(3)], True),
        ("x", [result(4), result(3)], False),
        ("x", [PauseChanged(3, 1, True)], True),
        ("x", [result(5)], False),
        ("y", [ExecutionEnded(3, "completed")], True),
        ("y", [ExecutionEnded(3, "failed")], False),
        ("z", [result(6, b"1" * 5_000_000)], False),
    ]
    assert [admits(FactRun(name, given, 1)) for name, given, _ in facts] == [
        expected for *_, expected in facts
    ]
    assert fact_batch()(FactRun("z", [result(6, b"1" * 5_000_000)], 1))
