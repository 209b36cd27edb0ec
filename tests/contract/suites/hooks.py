"""Contract of the rows of hooks: written with the end they follow from, taken by one process at a time."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from rune.core.execution.fact import ExecutionEnded
from rune.core.execution.outcome import Error
from rune.ports.journal import ExecutionEndedError, HookStore, Journal
from tests.contract.suites.records import execution_record, result
from tests.support.async_test import async_test

FAILURE = Error("E", "over")
MANY = 40


class HookContract:
    """Subclasses open the journal and the rows of hooks in a folder; opened again there, they have the same content."""

    def make_hooks(self, folder: Path) -> AbstractAsyncContextManager[tuple[Journal, HookStore]]:
        raise NotImplementedError

    @async_test
    async def test_failures_and_chosen_ends_have_rows(self, tmp_path: Path) -> None:
        async with self.make_hooks(tmp_path) as (journal, _):
            for name in ("a", "b", "c", "d", "e"):
                await journal.accept(execution_record(name))
            await journal.record("a", [result(1)])
            await journal.record("a", [ExecutionEnded(3, "halted", FAILURE)])
            await journal.record("b", [ExecutionEnded(4, "failed", FAILURE)])
            await journal.record("c", [ExecutionEnded(5, "completed")])
            await journal.record("d", [ExecutionEnded(6, "cancelled", FAILURE)])
            await journal.record("e", [ExecutionEnded(7, "cancelled", FAILURE)], hooked=True)
        async with self.make_hooks(tmp_path) as (_, hooks):
            rows = await hooks.take(10)
            assert [(each.execution, each.kind, each.at) for each in rows] == [
                ("a", "failure", 3),
                ("b", "failure", 4),
                ("e", "failure", 7),
            ]

    @async_test
    async def test_second_end_adds_no_row(self, tmp_path: Path) -> None:
        async with self.make_hooks(tmp_path) as (journal, hooks):
            await journal.accept(execution_record("a"))
            await journal.accept(execution_record("b"))
            await journal.record("a", [ExecutionEnded(3, "completed")])
            with pytest.raises(ExecutionEndedError):
                await journal.record("a", [ExecutionEnded(4, "failed", FAILURE)])
            await journal.record("b", [ExecutionEnded(5, "failed", FAILURE)])
            with pytest.raises(ExecutionEndedError):
                await journal.record("b", [ExecutionEnded(6, "halted", FAILURE)])
            assert [(each.execution, each.at) for each in await hooks.take(10)] == [("b", 5)]

    @async_test
    async def test_end_after_other_facts_of_its_run_has_row(self, tmp_path: Path) -> None:
        async with self.make_hooks(tmp_path) as (journal, hooks):
            await journal.accept(execution_record("a"))
            first, second = result(1), result(2)
            await asyncio.gather(
                journal.record("a", [first]),
                journal.record("a", [second, ExecutionEnded(3, "failed", FAILURE)]),
            )
            assert [each.execution for each in await hooks.take(10)] == ["a"]

    @async_test
    async def test_rows_are_taken_once_until_done(self, tmp_path: Path) -> None:
        async with self.make_hooks(tmp_path) as (journal, hooks):
            names = [f"x{number:02}" for number in range(MANY)]
            for name in names:
                await journal.accept(execution_record(name))
            ends = [ExecutionEnded(3, "failed", FAILURE) for _ in names]
            await asyncio.gather(
                *(journal.record(name, [end]) for name, end in zip(names, ends, strict=True))
            )
            taken = await asyncio.gather(*(hooks.take(MANY // 4) for _ in range(8)))
            rows = [row for each in taken for row in each]
            assert sorted(each.execution for each in rows) == names
            assert await hooks.take(MANY) == []
            await hooks.done([each.number for each in rows])
            await hooks.done([each.number for each in rows])
        async with self.make_hooks(tmp_path) as (_, hooks):
            assert await hooks.take(MANY) == []
