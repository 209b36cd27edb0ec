"""Contract of journals for dead letters: each is listed until it is resolved, once."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from rune.core.execution.fact import ExecutionEnded, Fact
from rune.core.execution.outcome import Error
from rune.ports.journal import DeadLetter, ExecutionEndedError, Journal
from tests.contract.suites.records import WRITERS, JournalContractBase, execution_record, result
from tests.support.async_test import async_test


async def _dead_lettered(
    journal: Journal, execution: str, at: int, code: str = "DEAD_LETTERED"
) -> DeadLetter:
    await journal.accept(execution_record(execution, workflow=f"w of {execution}"))
    error = Error(code, f"{execution} was given up", {"node": "b"}, engine=True)
    await journal.record(execution, [ExecutionEnded(at, "failed", error)])
    return DeadLetter(
        id=execution,
        execution=execution,
        workflow=f"w of {execution}",
        node="b",
        code=code,
        message=f"{execution} was given up",
        at=at,
    )


class DeadLetterContract(JournalContractBase):
    """Executions that the engine dead-lettered."""

    @async_test
    async def test_dead_letters_are_listed_newest_first(self, tmp_path: Path) -> None:
        async with self.make_journal(tmp_path) as journal:
            assert await journal.dead_letters(10) == []
            second = await _dead_lettered(journal, "a", 20)
            third = await _dead_lettered(journal, "b", 30, "WORKER_CRASH")
            first = await _dead_lettered(journal, "c", 10)
            assert await journal.dead_letters(10) == [third, second, first]

    @async_test
    async def test_each_code_of_the_engine_creates_a_dead_letter(self, tmp_path: Path) -> None:
        async with self.make_journal(tmp_path) as journal:
            codes = ("DEAD_LETTERED", "UNKNOWN_TYPE", "WORKER_CRASH")
            letters = [await _dead_lettered(journal, each.lower(), 10, each) for each in codes]
            found = await journal.dead_letters(10)
            assert sorted(found, key=lambda each: each.code) == letters

    @async_test
    async def test_other_ends_create_no_dead_letter(self, tmp_path: Path) -> None:
        async with self.make_journal(tmp_path) as journal:
            ends = (
                ExecutionEnded(3, "completed"),
                ExecutionEnded(3, "failed", Error("TIMEOUT", "", {"node": "b"}, engine=True)),
                ExecutionEnded(3, "halted", Error("E", "")),
                ExecutionEnded(3, "halted", Error("UNKNOWN_TYPE", "a code that a node gave")),
                ExecutionEnded(3, "cancelled", Error("CANCELLED", "")),
            )
            for number, end in enumerate(ends):
                await journal.accept(execution_record(f"x{number}"))
                await journal.record(f"x{number}", [end])
            await journal.accept(execution_record("running"))
            assert await journal.dead_letters(10) == []

    @async_test
    async def test_rejected_second_end_creates_no_dead_letter(self, tmp_path: Path) -> None:
        async with self.make_journal(tmp_path) as journal:
            await journal.accept(execution_record())
            await journal.record("x", [ExecutionEnded(3, "completed")])
            with pytest.raises(ExecutionEndedError):
                await journal.record("x", [ExecutionEnded(4, "failed", Error("DEAD_LETTERED", ""))])
            assert await journal.dead_letters(10) == []

    @async_test
    async def test_end_recorded_with_other_facts_creates_dead_letter(self, tmp_path: Path) -> None:
        async with self.make_journal(tmp_path) as journal:
            await journal.accept(execution_record())
            facts: list[Fact] = [result(1), ExecutionEnded(3, "failed", Error("WORKER_CRASH", ""))]
            await journal.record("x", facts)
            (letter,) = await journal.dead_letters(10)
            assert (letter.execution, letter.code, letter.node) == ("x", "WORKER_CRASH", "")

    @async_test
    async def test_dead_letters_are_paged(self, tmp_path: Path) -> None:
        async with self.make_journal(tmp_path) as journal:
            # Three have the same time: a page may end between two of them.
            moments = {"a": 10, "b": 20, "c": 20, "d": 20, "e": 30}
            for execution, at in moments.items():
                await _dead_lettered(journal, execution, at)
            whole = await journal.dead_letters(10)
            assert [each.at for each in whole] == [30, 20, 20, 20, 10]
            seen: list[DeadLetter] = []
            while page := await journal.dead_letters(2, seen[-1].id if seen else None):
                assert len(page) <= 2
                seen += page
            assert seen == whole

    @async_test
    async def test_paging_continues_after_resolved_dead_letter(self, tmp_path: Path) -> None:
        async with self.make_journal(tmp_path) as journal:
            for number in range(4):
                await _dead_lettered(journal, f"x{number}", number)
            (*_, last) = await journal.dead_letters(2)
            assert await journal.resolve_dead_letter(last.id, "dropped")
            assert [each.id for each in await journal.dead_letters(10, last.id)] == ["x1", "x0"]

    @async_test
    async def test_dead_letter_is_resolved_once(self, tmp_path: Path) -> None:
        async with self.make_journal(tmp_path) as journal:
            await _dead_lettered(journal, "x", 10)
            remaining = await _dead_lettered(journal, "y", 20)
            answers = await asyncio.gather(
                *(journal.resolve_dead_letter("x", "requeued") for _ in range(WRITERS))
            )
            assert answers.count(True) == 1
            assert not await journal.resolve_dead_letter("x", "dropped")
            assert not await journal.resolve_dead_letter("unknown", "dropped")
            assert await journal.dead_letters(10) == [remaining]
            end = await journal.end("x")
            assert end is not None
            assert end.status == "failed"

    @async_test
    async def test_dead_letters_survive_crash(self, tmp_path: Path) -> None:
        async with self.make_journal(tmp_path) as journal:
            unresolved = await _dead_lettered(journal, "x", 10)
            resolved = await _dead_lettered(journal, "y", 20)
            await journal.resolve_dead_letter(resolved.id, "dropped")
            crash_copy = self.make_crash_copy(tmp_path)
        for folder in (tmp_path, crash_copy):
            async with self.make_journal(folder) as journal:
                assert await journal.dead_letters(10) == [unresolved]
                assert not await journal.resolve_dead_letter(resolved.id, "requeued")
                assert await journal.resolve_dead_letter(unresolved.id, "requeued")
