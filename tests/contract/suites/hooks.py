"""Contract of the rows of hooks: written with the end they follow from, taken by one process at a time."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from rune.core.definition.model import HookHandler
from rune.core.execution.fact import ExecutionEnded, ExecutionLate, Fact
from rune.core.execution.outcome import Error
from rune.ports.journal import ExecutionEndedError, HandlerDefaults, HookStore, Journal
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
            last: list[Fact] = [result(2), ExecutionEnded(3, "failed", FAILURE)]
            await asyncio.gather(journal.record("a", [result(1)]), journal.record("a", last))
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
            assert {each.tries for each in rows} == {1}
            await hooks.done([each.number for each in rows])
            await hooks.done([each.number for each in rows])
        async with self.make_hooks(tmp_path) as (_, hooks):
            assert await hooks.take(MANY) == []

    @async_test
    async def test_rows_that_fail_are_listed_and_given_up(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for store in ("sqlite", "postgres"):
            monkeypatch.setattr(f"rune.adapters.{store}.stores.HOOK_HOLD_MS", 0)
        async with self.make_hooks(tmp_path) as (journal, hooks):
            for name in ("a", "b", "c"):
                await journal.accept(execution_record(name))
                await journal.record(name, [ExecutionEnded(3, "failed", FAILURE)])
            first, second, _ = await hooks.take(10)
            await hooks.fail(first.number, "is not deployed")
            await hooks.fail(second.number, "is not deployed", 50)
        async with self.make_hooks(tmp_path) as (_, hooks):
            rows = await hooks.take(10)
            assert [(each.execution, each.tries) for each in rows] == [("a", 2), ("c", 2)]
            failed = await hooks.failed(10)
            assert [(each.execution, each.tries, each.given_up) for each in failed] == [
                ("b", 1, 50),
                ("a", 2, None),
            ]
            assert {each.error for each in failed} == {"is not deployed"}
            assert len(await hooks.failed(1)) == 1
            assert await hooks.forget(50) == 0
            assert await hooks.forget(51) == 1
            assert [each.execution for each in await hooks.failed(10)] == ["a"]

    @async_test
    async def test_rows_are_hidden_longer_each_time(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for store in ("sqlite", "postgres"):
            monkeypatch.setattr(f"rune.adapters.{store}.stores.HOOK_HOLD_MS", 3_600_000)
            monkeypatch.setattr(f"rune.adapters.{store}.stores.MAX_HOOK_HOLD_MS", 0)
        async with self.make_hooks(tmp_path) as (journal, hooks):
            await journal.accept(execution_record("a"))
            await journal.record("a", [ExecutionEnded(3, "failed", FAILURE)])
            # However often it was taken: the longest time bounds it.
            for tries in range(1, 70):
                (row,) = await hooks.take(10)
                assert row.tries == tries
            for store in ("sqlite", "postgres"):
                monkeypatch.setattr(f"rune.adapters.{store}.stores.MAX_HOOK_HOLD_MS", 3_600_000)
            (row,) = await hooks.take(10)
            assert await hooks.take(10) == []

    @async_test
    async def test_late_executions_have_rows_of_their_own(self, tmp_path: Path) -> None:
        async with self.make_hooks(tmp_path) as (journal, hooks):
            for name in ("a", "b", "c"):
                await journal.accept(execution_record(name))
            # Late and ended in the same millisecond: what is recorded first decides whether it was late.
            await journal.record("a", [ExecutionLate(5)])
            await journal.record("a", [ExecutionEnded(5, "failed", FAILURE)])
            await journal.record("b", [ExecutionEnded(5, "failed", FAILURE)])
            with pytest.raises(ExecutionEndedError):
                await journal.record("b", [ExecutionLate(5)])
            await asyncio.gather(journal.record("c", [result(1)]), journal.record("c", [ExecutionLate(6)]))
            rows = await hooks.take(10)
            expected = {("a", "late", 5), ("a", "failure", 5), ("b", "failure", 5), ("c", "late", 6)}
            assert {(each.execution, each.kind, each.at) for each in rows} == expected
            await hooks.done([each.number for each in rows])
            # The state was lost, and another process finds the same.
            (stored,) = await journal.record("c", [ExecutionLate(7)])
            assert stored == ExecutionLate(6)
        async with self.make_hooks(tmp_path) as (journal, hooks):
            assert await hooks.take(10) == []
            assert [(each.fact, each.late) for each in await journal.facts("a")] == [
                (ExecutionLate(5), False),
                (ExecutionEnded(5, "failed", FAILURE), False),
            ]
            assert [each.late for each in await journal.facts("b")] == [False, True]

    @async_test
    async def test_defaults_are_replaced(self, tmp_path: Path) -> None:
        first = HandlerDefaults(on_failure=HookHandler(workflow="tell", version=3, statuses=("cancelled",)))
        async with self.make_hooks(tmp_path) as (_, hooks):
            assert await hooks.defaults() == HandlerDefaults()
            await hooks.put_defaults(first)
        async with self.make_hooks(tmp_path) as (_, hooks):
            assert await hooks.defaults() == first
            await hooks.put_defaults(HandlerDefaults(on_late=HookHandler(workflow="late")))
            assert await hooks.defaults() == HandlerDefaults(on_late=HookHandler(workflow="late"))
