"""What every journal promises: write once, first writer wins, everybody uses the stored row, nothing is lost."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from rune.core.fact import Attempt, Choice, Control, End, Fact, Result, Suspension
from rune.core.lineage import Path as Lineage
from rune.core.outcome import Error
from rune.core.token import START
from rune.ports.journal import FORMAT, Accepted, Ended, Journal, KeyConflict, NewerFormat
from rune.testing.contracts.scenario import scenario
from rune.wire.codec import Inline, Large, Paged, Same

WRITERS = 50


def accepted(execution: str = "x", **given: object) -> Accepted:
    """An execution as it may be accepted."""
    fields: dict[str, object] = {
        "id": execution,
        "workflow": "w",
        "hash": "h",
        "at": 1,
        "input": b"{}",
        **given,
    }
    return Accepted(**fields)  # type: ignore[arg-type]


def result(node: int, value: bytes = b"1", path: Lineage = (), at: int = 2) -> Result:
    """A result whose value is told apart."""
    return Result(node, path, at, "ok", value=Inline(value))


class JournalContract:
    """Subclass it and open a journal in a folder; opened again there, it holds what it held."""

    def make_journal(self, folder: Path) -> AbstractAsyncContextManager[Journal]:
        raise NotImplementedError

    def crashed(self, folder: Path) -> Path:
        """A folder with what a crash at this instant would leave on disk; the journal stays open."""
        raise NotImplementedError

    @scenario
    async def test_the_first_writer_wins_and_the_stored_row_is_the_answer(self, folder: Path) -> None:
        async with self.make_journal(folder) as journal:
            await journal.accept(accepted())
            first, second = result(1, b"1"), result(1, b"2")
            assert list(await journal.record("x", [first])) == [first]
            assert list(await journal.record("x", [second])) == [first]
            assert [row.fact for row in await journal.facts("x")] == [first]

    @scenario
    async def test_a_winner_gets_its_own_fact_back(self, folder: Path) -> None:
        """Identity says who won: an equal row may be somebody else's."""
        async with self.make_journal(folder) as journal:
            await journal.accept(accepted())
            first, twin = result(1), result(1)
            assert (await journal.record("x", [first]))[0] is first
            assert (await journal.record("x", [twin]))[0] is not twin

    @scenario
    async def test_of_many_writers_at_once_exactly_one_wins(self, folder: Path) -> None:
        async with self.make_journal(folder) as journal:
            await journal.accept(accepted())
            mine = [result(1, str(number).encode()) for number in range(WRITERS)]
            answers = await asyncio.gather(*(journal.record("x", [each]) for each in mine))
            winners = [own for own, (answer,) in zip(mine, answers, strict=True) if answer is own]
            assert len(winners) == 1
            assert all(answer == winners[0] for (answer,) in answers)

    @scenario
    async def test_a_run_of_facts_hangs_on_its_first(self, folder: Path) -> None:
        async with self.make_journal(folder) as journal:
            await journal.accept(accepted())
            head = result(1)
            await journal.record("x", [head])
            answer = await journal.record("x", [result(1, b"2"), result(2), result(3)])
            assert list(answer) == [head]
            assert await journal.results("x", [(2, ()), (3, ())]) == [None, None]

    @scenario
    async def test_of_runs_at_once_one_is_written_whole(self, folder: Path) -> None:
        async with self.make_journal(folder) as journal:
            await journal.accept(accepted())
            runs = [[result(node, str(number).encode()) for node in (1, 2, 3)] for number in range(WRITERS)]
            await asyncio.gather(*(journal.record("x", run) for run in runs))
            stored = [row.fact for row in await journal.facts("x")]
            assert stored in runs

    @scenario
    async def test_a_run_whose_tail_is_known_writes_its_head(self, folder: Path) -> None:
        async with self.make_journal(folder) as journal:
            await journal.accept(accepted())
            tail = result(2, b"before")
            await journal.record("x", [tail])
            head = result(1)
            assert list(await journal.record("x", [head, result(2, b"after")])) == [head]
            assert await journal.results("x", [(1, ()), (2, ())]) == [head, tail]

    @scenario
    async def test_sending_again_changes_nothing(self, folder: Path) -> None:
        async with self.make_journal(folder) as journal:
            await journal.accept(accepted())
            run = [result(1), result(2)]
            await journal.record("x", run)
            await journal.record("x", run)
            assert [row.fact for row in await journal.facts("x")] == run

    @scenario
    async def test_every_kind_of_fact_comes_back_as_it_was(self, folder: Path) -> None:
        facts: list[Fact] = [
            Attempt(1, (2, 0), 2, 1, Error("E", "said", {"retry_at": 9})),
            Attempt(1, (2, 0), 3, 2, Error("E", "said")),
            Suspension(1, (2, 0), 4, attempt=3, due=99),
            Suspension(2, (), 4, signal="go"),
            Choice(3, (), 5, (), START),
            Result(1, (2, 0), 6, "failed", failure=Error("E", "ü", engine=True), attempt=3),
            Result(2, (), 6, "ok", value=Large("x/k", 5)),
            Result(4, (), 6, "ok", items=3, value=Paged("x/p", 3, (0, 2))),
            Result(5, (), 7, "ok", value=Same(START), outlet="true"),
            Result(6, (), 7, "skipped"),
            Result(7, (), 7, "cancelled"),
            Control(8, 1, True),
            Control(9, 2, False),
            End(10, "failed", Error("E", "over")),
        ]
        async with self.make_journal(folder) as journal:
            await journal.accept(accepted())
            for fact in facts:
                await journal.record("x", [fact])
            assert [row.fact for row in await journal.facts("x")] == facts

    @scenario
    async def test_the_full_path_is_part_of_the_key(self, folder: Path) -> None:
        async with self.make_journal(folder) as journal:
            await journal.accept(accepted())
            paths: list[Lineage] = [(), (1, 0), (1, 256), (1, 0, 2, 0), (1, 1, 2, 0), (2, 0)]
            for number, path in enumerate(paths):
                await journal.record("x", [result(3, str(number).encode(), path)])
            found = await journal.results("x", [(3, path) for path in paths])
            assert [each.value.data for each in found if each] == [b"0", b"1", b"2", b"3", b"4", b"5"]

    @scenario
    async def test_executions_share_nothing(self, folder: Path) -> None:
        async with self.make_journal(folder) as journal:
            await journal.accept(accepted("x"))
            await journal.accept(accepted("y"))
            await journal.record("x", [result(1, b"x")])
            await journal.record("x", [End(3, "completed")])
            assert list(await journal.record("y", [result(1, b"y")])) == [result(1, b"y")]
            assert await journal.end("y") is None

    @scenario
    async def test_results_are_answered_in_the_order_asked(self, folder: Path) -> None:
        async with self.make_journal(folder) as journal:
            await journal.accept(accepted())
            await journal.record("x", [result(1, b"1"), result(2, b"2")])
            await journal.record("x", [Attempt(3, (), 2, 1, Error("E", ""))])
            found = await journal.results("x", [(2, ()), (3, ()), (1, ())])
            assert found == [result(2, b"2"), None, result(1, b"1")]

    @scenario
    async def test_facts_come_in_commit_order_and_from_a_number_on(self, folder: Path) -> None:
        async with self.make_journal(folder) as journal:
            await journal.accept(accepted())
            order = [5, 1, 4, 2, 3]
            for node in order:
                await journal.record("x", [result(node)])
            rows = await journal.facts("x")
            assert [row.fact.node for row in rows if isinstance(row.fact, Result)] == order
            numbers = [row.number for row in rows]
            assert numbers == sorted(set(numbers))
            assert await journal.facts("x", after=numbers[2]) == rows[3:]
            assert await journal.facts("x", after=numbers[-1]) == []

    @scenario
    async def test_there_is_one_terminal_row(self, folder: Path) -> None:
        async with self.make_journal(folder) as journal:
            await journal.accept(accepted())
            ends = [End(number, "completed") for number in range(10, 10 + WRITERS)]
            answers = await asyncio.gather(
                *(journal.record("x", [end]) for end in ends), return_exceptions=True
            )
            told = {each.end if isinstance(each, Ended) else each[0] for each in answers}  # type: ignore[index]
            assert len(told) == 1
            assert await journal.end("x") in told

    @scenario
    async def test_what_comes_after_the_end_is_kept_and_marked_late(self, folder: Path) -> None:
        async with self.make_journal(folder) as journal:
            await journal.accept(accepted())
            end = End(5, "halted", Error("E", "over"))
            await journal.record("x", [result(1)])
            await journal.record("x", [end])
            with pytest.raises(Ended) as raised:
                await journal.record("x", [result(2)])
            assert raised.value.end == end
            rows = await journal.facts("x")
            assert [(type(row.fact), row.late) for row in rows] == [
                (Result, False),
                (End, False),
                (Result, True),
            ]

    @scenario
    async def test_another_end_changes_nothing(self, folder: Path) -> None:
        async with self.make_journal(folder) as journal:
            await journal.accept(accepted())
            end = End(5, "halted")
            await journal.record("x", [end])
            try:
                (answer,) = await journal.record("x", [End(6, "completed")])
            except Ended as ended:
                answer = ended.end
            assert answer == end
            assert [row.fact for row in await journal.facts("x")] == [end]

    @scenario
    async def test_the_end_is_known_after_a_restart(self, folder: Path) -> None:
        end = End(5, "completed")
        async with self.make_journal(folder) as journal:
            await journal.accept(accepted())
            await journal.record("x", [end])
        async with self.make_journal(folder) as journal:
            assert await journal.end("x") == end
            with pytest.raises(Ended):
                await journal.record("x", [result(2)])

    @scenario
    async def test_what_was_acknowledged_outlives_a_crash(self, folder: Path) -> None:
        async with self.make_journal(folder) as journal:
            await journal.save_definition("h", b"{}")
            await journal.accept(accepted(key="k"))
            await asyncio.gather(*(journal.record("x", [result(node)]) for node in range(WRITERS)))
            left = self.crashed(folder)
        async with self.make_journal(left) as journal:
            assert await journal.accepted("x") == accepted(key="k")
            assert await journal.definition("h") == b"{}"
            found = await journal.results("x", [(node, ()) for node in range(WRITERS)])
            assert found == [result(node) for node in range(WRITERS)]

    @scenario
    async def test_numbers_go_on_after_a_restart(self, folder: Path) -> None:
        async with self.make_journal(folder) as journal:
            await journal.accept(accepted())
            await journal.record("x", [result(1), result(2)])
        async with self.make_journal(folder) as journal:
            await journal.accepted("x")
            await journal.record("x", [result(3)])
            rows = await journal.facts("x")
            assert [row.fact.node for row in rows if isinstance(row.fact, Result)] == [1, 2, 3]
            assert rows[2].number > rows[1].number

    @scenario
    async def test_a_definition_is_kept_once(self, folder: Path) -> None:
        async with self.make_journal(folder) as journal:
            await journal.save_definition("h", b"{}")
            await journal.save_definition("h", b"{}")
            assert await journal.definition("h") == b"{}"
            assert await journal.definition("other") is None

    @scenario
    async def test_an_unknown_execution_is_none(self, folder: Path) -> None:
        async with self.make_journal(folder) as journal:
            assert await journal.accepted("nobody") is None

    @scenario
    async def test_a_client_key_starts_one_execution(self, folder: Path) -> None:
        async with self.make_journal(folder) as journal:
            wanted = [accepted(f"x{number}", key="k") for number in range(WRITERS)]
            answers = await asyncio.gather(*(journal.accept(each) for each in wanted))
            assert len({each.id for each in answers}) == 1
            assert (await journal.accept(accepted("late", key="k"))).id == answers[0].id
            assert await journal.accepted("late") is None
            known = [each.id for each in wanted if await journal.accepted(each.id) is not None]
            assert known == [answers[0].id]

    @scenario
    async def test_a_client_key_with_something_else_is_refused(self, folder: Path) -> None:
        async with self.make_journal(folder) as journal:
            await journal.accept(accepted("x", key="k"))
            others: tuple[dict[str, object], ...] = ({"input": b"[1]"}, {"hash": "h2"})
            for number, other in enumerate(others):
                with pytest.raises(KeyConflict):
                    await journal.accept(accepted(f"y{number}", key="k", **other))
                assert await journal.accepted(f"y{number}") is None
            await journal.record("x", [result(1)])

    @scenario
    async def test_a_conflict_does_not_touch_its_neighbours(self, folder: Path) -> None:
        """Writes of one moment share a transaction; what is wrong with one of them is its own affair."""
        async with self.make_journal(folder) as journal:
            await journal.accept(accepted("x", key="k"))
            wanted = [accepted(f"n{number}") for number in range(20)]
            bad = accepted("bad", key="k", input=b"[]")
            answers = await asyncio.gather(
                *(journal.accept(each) for each in [*wanted[:10], bad, *wanted[10:]]), return_exceptions=True
            )
            assert [type(each) for each in answers].count(KeyConflict) == 1
            assert all([await journal.accepted(each.id) == each for each in wanted])

    @scenario
    async def test_what_a_newer_version_wrote_is_refused_and_left_alone(self, folder: Path) -> None:
        async with self.make_journal(folder) as journal:
            await journal.accept(accepted("new", format=FORMAT + 1))
            await journal.accept(accepted("old"))
        async with self.make_journal(folder) as journal:
            for _ in range(2):
                with pytest.raises(NewerFormat):
                    await journal.accepted("new")
            assert await journal.accepted("old") == accepted("old")
