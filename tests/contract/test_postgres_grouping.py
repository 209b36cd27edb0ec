"""Grouping, without a database: who is written with whom, and who waits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from rune.adapters.postgres.batching import splitting
from rune.adapters.postgres.database import DatabaseRefusedError, OutOfLocksError
from rune.adapters.postgres.journal_writes import FactRun, fact_batch
from rune.batching import Batcher
from rune.core.execution.fact import ExecutionEnded, Fact, PauseChanged
from rune.ports.journal import StoreUnavailableError
from tests.contract.suites.records import result


class Press:
    """Writes down who was written together; each group waits to be let go."""

    def __init__(
        self, lanes: int = 1, most: int = 100, bad: str = "", error: Callable[[], Exception] = Exception
    ) -> None:
        self.groups: list[list[str]] = []
        self.gates: list[asyncio.Event] = []
        self.came = asyncio.Event()
        self.open = False
        self._bad = bad
        self._error = error
        self.work: Batcher[str, str] = Batcher(
            splitting(self._write),
            max_requests=most,
            lanes=lanes,
            names=lambda name: (name,),
            error=StoreUnavailableError,
        )

    async def _write(self, group: Sequence[str]) -> list[str]:
        self.groups.append(list(group))
        gate = asyncio.Event()
        self.gates.append(gate)
        self.came.set()
        if not self.open:
            await gate.wait()
        if self._bad and any(each.startswith(self._bad) for each in group):
            raise self._error()
        return list(group)

    def submit(self, *names: str) -> list[asyncio.Future[Any]]:
        return [self.work.submit(name) for name in names]

    async def group(self) -> list[str]:
        """The group that is being written, once there is one."""
        await self.came.wait()
        self.came.clear()
        return self.groups[-1]


def run(scenario: Callable[[], Any]) -> None:
    asyncio.run(asyncio.wait_for(scenario(), 10))


def test_one_alone_is_written_at_once_and_what_comes_meanwhile_is_the_next_group() -> None:
    async def scenario() -> None:
        press = Press()
        press.submit("a")
        assert await press.group() == ["a"]
        press.submit("b", "c")
        press.submit("d")
        press.gates[0].set()
        assert await press.group() == ["b", "c", "d"]
        press.open = True
        press.gates[1].set()
        await press.work.close()
        assert len(press.groups) == 2

    run(scenario)


def test_those_who_come_in_the_same_moment_are_one_group() -> None:
    async def scenario() -> None:
        press = Press()
        press.open = True
        answers = await asyncio.gather(*press.submit("a", "b", "c"))
        assert answers == ["a", "b", "c"]
        assert press.groups == [["a", "b", "c"]]

    run(scenario)


def test_a_free_lane_takes_what_has_nothing_to_do_with_what_is_under_way() -> None:
    async def scenario() -> None:
        press = Press(lanes=2)
        press.submit("a")
        await press.group()
        press.submit("a", "b")
        assert await press.group() == ["b"]
        press.gates[1].set()
        press.gates[0].set()
        assert await press.group() == ["a"]
        press.gates[2].set()
        await press.work.close()

    run(scenario)


def test_a_group_has_its_limit() -> None:
    async def scenario() -> None:
        press = Press(most=2)
        press.open = True
        await asyncio.gather(*press.submit(*"abcde"))
        assert press.groups == [["a", "b"], ["c", "d"], ["e"]]

    run(scenario)


@pytest.mark.parametrize("error", [DatabaseRefusedError, OutOfLocksError, RuntimeError])
def test_whoever_cannot_be_written_is_found_and_the_others_are_written(error: type[Exception]) -> None:
    async def scenario() -> None:
        press = Press(bad="x", error=lambda: error("no"))
        press.open = True
        answers = await asyncio.gather(
            *press.submit("a", "b", "x1", "c", "d", "x2", "e"), return_exceptions=True
        )
        assert [each if isinstance(each, str) else type(each) for each in answers] == [
            "a", "b", error, "c", "d", error, "e",
        ]  # fmt: skip

    run(scenario)


def test_a_store_that_is_away_is_nobody_s_fault() -> None:
    async def scenario() -> None:
        press = Press(bad="x", error=lambda: StoreUnavailableError("gone"))
        press.open = True
        answers = await asyncio.gather(*press.submit("a", "x", "b"), return_exceptions=True)
        assert [type(each) for each in answers] == [StoreUnavailableError] * 3
        assert press.groups == [["a", "x", "b"]]

    run(scenario)


def test_who_no_longer_waits_before_it_is_written_is_left_out() -> None:
    async def scenario() -> None:
        press = Press()
        press.submit("a")
        await press.group()
        gone, _ = press.submit("b", "c")
        gone.cancel()
        press.gates[0].set()
        assert await press.group() == ["c"]
        press.gates[1].set()
        await press.work.close()

    run(scenario)


def test_what_is_closed_takes_nothing_more() -> None:
    async def scenario() -> None:
        press = Press()
        (before,) = press.submit("a")
        closing = asyncio.create_task(press.work.close())
        await press.group()
        (late,) = press.submit("b")
        press.gates[0].set()
        await closing
        assert await before == "a"
        with pytest.raises(StoreUnavailableError):
            await late

    run(scenario)


def test_a_group_names_a_fact_once_and_ends_an_execution_last() -> None:
    async def scenario() -> None:
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

    run(scenario)
