"""What every journal promises of dead letters: whoever the engine gave up on is listed until it is settled, once."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from rune.core.execution.fact import ExecutionEnded
from rune.core.execution.outcome import Error
from rune.ports.journal import DeadLetter, ExecutionEndedError, Journal
from tests.contract.suites.records import WRITERS, JournalSuite, accepted, result
from tests.contract.suites.scenario import scenario


async def _given_up(journal: Journal, execution: str, at: int, code: str = "DEAD_LETTERED") -> DeadLetter:
    await journal.accept(accepted(execution, workflow=f"w of {execution}"))
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


class LetterContract(JournalSuite):
    """Executions that the engine gave up on."""

    @scenario
    async def test_what_the_engine_gave_up_on_is_listed_newest_first(self, folder: Path) -> None:
        async with self.make_journal(folder) as journal:
            assert await journal.dead_letters(10) == []
            second = await _given_up(journal, "a", 20)
            third = await _given_up(journal, "b", 30, "WORKER_CRASH")
            first = await _given_up(journal, "c", 10)
            assert await journal.dead_letters(10) == [third, second, first]

    @scenario
    async def test_other_ends_are_no_dead_letters(self, folder: Path) -> None:
        async with self.make_journal(folder) as journal:
            ends = (
                ExecutionEnded(3, "completed"),
                ExecutionEnded(3, "failed", Error("TIMEOUT", "", {"node": "b"}, engine=True)),
                ExecutionEnded(3, "halted", Error("E", "")),
                ExecutionEnded(3, "cancelled", Error("CANCELLED", "")),
            )
            for number, end in enumerate(ends):
                await journal.accept(accepted(f"x{number}"))
                await journal.record(f"x{number}", [end])
            await journal.accept(accepted("running"))
            assert await journal.dead_letters(10) == []

    @scenario
    async def test_an_end_that_came_second_is_no_dead_letter(self, folder: Path) -> None:
        async with self.make_journal(folder) as journal:
            await journal.accept(accepted())
            await journal.record("x", [ExecutionEnded(3, "completed")])
            with pytest.raises(ExecutionEndedError):
                await journal.record("x", [ExecutionEnded(4, "failed", Error("DEAD_LETTERED", ""))])
            assert await journal.dead_letters(10) == []

    @scenario
    async def test_an_end_that_goes_along_with_other_facts_is_a_dead_letter(self, folder: Path) -> None:
        async with self.make_journal(folder) as journal:
            await journal.accept(accepted())
            await journal.record("x", [result(1), ExecutionEnded(3, "failed", Error("WORKER_CRASH", ""))])
            (letter,) = await journal.dead_letters(10)
            assert (letter.execution, letter.code, letter.node) == ("x", "WORKER_CRASH", "")

    @scenario
    async def test_dead_letters_come_in_pages(self, folder: Path) -> None:
        async with self.make_journal(folder) as journal:
            # Three of them at the same moment: a page may end between two of these.
            moments = {"a": 10, "b": 20, "c": 20, "d": 20, "e": 30}
            for execution, at in moments.items():
                await _given_up(journal, execution, at)
            whole = await journal.dead_letters(10)
            assert [each.at for each in whole] == [30, 20, 20, 20, 10]
            seen: list[DeadLetter] = []
            while page := await journal.dead_letters(2, seen[-1].id if seen else None):
                assert len(page) <= 2
                seen += page
            assert seen == whole

    @scenario
    async def test_pages_go_on_behind_a_letter_that_was_settled(self, folder: Path) -> None:
        async with self.make_journal(folder) as journal:
            for number in range(4):
                await _given_up(journal, f"x{number}", number)
            (*_, last) = await journal.dead_letters(2)
            assert await journal.resolve_dead_letter(last.id, "dropped")
            assert [each.id for each in await journal.dead_letters(10, last.id)] == ["x1", "x0"]

    @scenario
    async def test_a_dead_letter_is_settled_once(self, folder: Path) -> None:
        async with self.make_journal(folder) as journal:
            await _given_up(journal, "x", 10)
            left = await _given_up(journal, "y", 20)
            answers = await asyncio.gather(
                *(journal.resolve_dead_letter("x", "requeued") for _ in range(WRITERS))
            )
            assert answers.count(True) == 1
            assert not await journal.resolve_dead_letter("x", "dropped")
            assert not await journal.resolve_dead_letter("nobody", "dropped")
            assert await journal.dead_letters(10) == [left]
            end = await journal.end("x")
            assert end is not None
            assert end.status == "failed"

    @scenario
    async def test_dead_letters_outlive_a_crash(self, folder: Path) -> None:
        async with self.make_journal(folder) as journal:
            open_one = await _given_up(journal, "x", 10)
            settled = await _given_up(journal, "y", 20)
            await journal.resolve_dead_letter(settled.id, "dropped")
            left = self.crashed(folder)
        for place in (folder, left):
            async with self.make_journal(place) as journal:
                assert await journal.dead_letters(10) == [open_one]
                assert not await journal.resolve_dead_letter(settled.id, "requeued")
                assert await journal.resolve_dead_letter(open_one.id, "requeued")
