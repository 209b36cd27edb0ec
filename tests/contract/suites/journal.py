"""What every journal promises: write once, first writer wins, everybody uses the stored row, nothing is lost."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from rune.codec.facts import Inline, Large, Paged, Same
from rune.core.execution.fact import (
    AttemptFailed,
    EffectStarted,
    ExecutionEnded,
    Fact,
    NodeResult,
    NodeSuspended,
    PauseChanged,
    RaceWinner,
    SignalReceived,
)
from rune.core.execution.outcome import Error
from rune.core.execution.token import START
from rune.core.execution.token import Path as Lineage
from rune.ports.journal import ExecutionEndedError
from rune.ports.queries import ExecutionFilter
from tests.contract.suites.family import FamilyContract
from tests.contract.suites.letters import LetterContract
from tests.contract.suites.records import WRITERS, accepted, result
from tests.contract.suites.scenario import scenario
from tests.contract.suites.starting import StartContract


class JournalContract(StartContract, FamilyContract, LetterContract):
    """Subclass it and open a journal in a folder; opened again there, it holds what it held."""

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
            AttemptFailed(1, (2, 0), 2, 1, Error("E", "said", {"retry_at": 9})),
            AttemptFailed(1, (2, 0), 3, 2, Error("E", "said")),
            NodeSuspended(1, (2, 0), 4, attempt=3, due=99),
            NodeSuspended(2, (), 4, signal="go"),
            RaceWinner(3, (), 5, (), START),
            NodeResult(1, (2, 0), 6, "failed", failure=Error("E", "ü", engine=True), attempt=3),
            NodeResult(2, (), 6, "ok", value=Large("x/k", 5)),
            NodeResult(4, (), 6, "ok", items=3, value=Paged("x/p", 3, (0, 2))),
            NodeResult(5, (), 7, "ok", value=Same(START), outlet="true"),
            NodeResult(6, (), 7, "skipped"),
            NodeResult(7, (), 7, "cancelled"),
            NodeResult(8, (), 7, "ok", value=Inline(b"1"), signal="s", kept=True),
            EffectStarted(9, (2, 0), 7, 1),
            AttemptFailed(9, (2, 0), 7, 1, Error("E", "said"), "another"),
            NodeSuspended(9, (2, 0), 7, attempt=2, due=90, signal="go", deadline=80),
            SignalReceived(7, "s", "go"),
            SignalReceived(8, "key/with ü", "go", (2, 0), Inline(b'{"a": 1}')),
            SignalReceived(8, "large", "go", (), Large("x/signal", 5)),
            PauseChanged(8, 1, True),
            PauseChanged(9, 2, False),
            ExecutionEnded(10, "failed", Error("E", "over")),
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
            await journal.record("x", [ExecutionEnded(3, "completed")])
            assert list(await journal.record("y", [result(1, b"y")])) == [result(1, b"y")]
            assert await journal.end("y") is None

    @scenario
    async def test_results_are_answered_in_the_order_asked(self, folder: Path) -> None:
        async with self.make_journal(folder) as journal:
            await journal.accept(accepted())
            await journal.record("x", [result(1, b"1"), result(2, b"2")])
            await journal.record("x", [AttemptFailed(3, (), 2, 1, Error("E", ""))])
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
            assert [row.fact.node for row in rows if isinstance(row.fact, NodeResult)] == order
            numbers = [row.number for row in rows]
            assert numbers == sorted(set(numbers))
            assert await journal.facts("x", after=numbers[2]) == rows[3:]
            assert await journal.facts("x", after=numbers[-1]) == []
            assert await journal.facts("x", limit=2) == rows[:2]
            assert await journal.facts("x", after=numbers[1], limit=2) == rows[2:4]
            assert await journal.facts("x", after=numbers[3], limit=2) == rows[4:]

    @scenario
    async def test_there_is_one_terminal_row(self, folder: Path) -> None:
        async with self.make_journal(folder) as journal:
            await journal.accept(accepted())
            ends = [ExecutionEnded(number, "completed") for number in range(10, 10 + WRITERS)]
            answers = await asyncio.gather(
                *(journal.record("x", [end]) for end in ends), return_exceptions=True
            )
            told = {each.end if isinstance(each, ExecutionEndedError) else each[0] for each in answers}  # type: ignore[index]
            assert len(told) == 1
            assert await journal.end("x") in told

    @scenario
    async def test_what_comes_after_the_end_is_kept_and_marked_late(self, folder: Path) -> None:
        async with self.make_journal(folder) as journal:
            await journal.accept(accepted())
            end = ExecutionEnded(5, "halted", Error("E", "over"))
            await journal.record("x", [result(1)])
            await journal.record("x", [end])
            with pytest.raises(ExecutionEndedError) as raised:
                await journal.record("x", [result(2)])
            assert raised.value.end == end
            rows = await journal.facts("x")
            assert [(type(row.fact), row.late) for row in rows] == [
                (NodeResult, False),
                (ExecutionEnded, False),
                (NodeResult, True),
            ]

    @scenario
    async def test_another_end_changes_nothing(self, folder: Path) -> None:
        async with self.make_journal(folder) as journal:
            await journal.accept(accepted())
            end = ExecutionEnded(5, "halted")
            await journal.record("x", [end])
            try:
                (answer,) = await journal.record("x", [ExecutionEnded(6, "completed")])
            except ExecutionEndedError as ended:
                answer = ended.end
            assert answer == end
            assert [row.fact for row in await journal.facts("x")] == [end]

    @scenario
    async def test_the_end_is_known_after_a_restart(self, folder: Path) -> None:
        end = ExecutionEnded(5, "completed")
        async with self.make_journal(folder) as journal:
            await journal.accept(accepted())
            await journal.record("x", [end])
        async with self.make_journal(folder) as journal:
            assert await journal.end("x") == end
            with pytest.raises(ExecutionEndedError):
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
            assert [row.fact.node for row in rows if isinstance(row.fact, NodeResult)] == [1, 2, 3]
            assert rows[2].number > rows[1].number

    @scenario
    async def test_a_definition_is_kept_once(self, folder: Path) -> None:
        async with self.make_journal(folder) as journal:
            await journal.save_definition("h", b"{}")
            await journal.save_definition("h", b"{}")
            assert await journal.definition("h") == b"{}"
            assert await journal.definition("other") is None

    @scenario
    async def test_the_end_is_known_after_a_restart_to_whoever_asks_for_nothing_first(
        self, folder: Path
    ) -> None:
        end = ExecutionEnded(5, "completed")
        async with self.make_journal(folder) as journal:
            await journal.accept(accepted())
            await journal.record("x", [end])
        async with self.make_journal(folder) as journal:
            with pytest.raises(ExecutionEndedError) as raised:
                await journal.record("x", [result(2)])
            assert raised.value.end == end
            assert [row.late for row in await journal.facts("x")] == [False, True]

    @scenario
    async def test_a_signal_is_kept_once_by_its_id(self, folder: Path) -> None:
        async with self.make_journal(folder) as journal:
            await journal.accept(accepted())
            first = SignalReceived(2, "s", "go", (1, 0), Inline(b'{"a": 1}'))
            assert (await journal.record("x", [first]))[0] is first
            again, other = SignalReceived(3, "s", "stop", None, Inline(b"2")), SignalReceived(3, "t", "go")
            assert list(await journal.record("x", [again])) == [first]
            assert list(await journal.record("x", [other])) == [other]
            assert await journal.signal("x", "s") == first
            assert await journal.signal("x", "t") == other
            assert await journal.signal("x", "nobody") is None
            assert [row.fact for row in await journal.facts("x")] == [first, other]

    @scenario
    async def test_of_many_who_signal_at_once_under_one_id_one_is_heard(self, folder: Path) -> None:
        async with self.make_journal(folder) as journal:
            await journal.accept(accepted())
            mine = [
                SignalReceived(2, "s", "go", None, Inline(str(number).encode())) for number in range(WRITERS)
            ]
            answers = await asyncio.gather(*(journal.record("x", [each]) for each in mine))
            stored = await journal.signal("x", "s")
            assert all(answer == stored for (answer,) in answers)
            assert [answer is own for own, (answer,) in zip(mine, answers, strict=True)].count(True) == 1

    @scenario
    async def test_a_signal_belongs_to_one_execution(self, folder: Path) -> None:
        async with self.make_journal(folder) as journal:
            await journal.accept(accepted("x"))
            await journal.accept(accepted("y"))
            await journal.record("x", [SignalReceived(2, "s", "go", None, Inline(b"1"))])
            mine = SignalReceived(3, "s", "go", None, Inline(b"2"))
            assert await journal.signal("y", "s") is None
            assert list(await journal.record("y", [mine])) == [mine]

    @scenario
    async def test_an_ended_execution_hears_nothing(self, folder: Path) -> None:
        async with self.make_journal(folder) as journal:
            await journal.accept(accepted())
            await journal.record("x", [ExecutionEnded(5, "completed")])
            for fact in (SignalReceived(6, "s", "go"), PauseChanged(6, 1, True), EffectStarted(1, (), 6, 1)):
                with pytest.raises(ExecutionEndedError):
                    await journal.record("x", [fact])
            assert [row.late for row in await journal.facts("x")] == [False, True, True, True]

    @scenario
    async def test_a_beginning_is_noted_once_for_each_attempt(self, folder: Path) -> None:
        async with self.make_journal(folder) as journal:
            await journal.accept(accepted())
            first, again, second = (
                EffectStarted(1, (2, 0), 2, 1),
                EffectStarted(1, (2, 0), 3, 1),
                EffectStarted(1, (2, 0), 4, 2),
            )
            assert (await journal.record("x", [first]))[0] is first
            (stored,) = await journal.record("x", [again])
            assert (stored == first, stored is again) == (True, False)
            assert (await journal.record("x", [second]))[0] is second
            assert (await journal.record("x", [EffectStarted(1, (2, 1), 4, 1)]))[0] == EffectStarted(
                1, (2, 1), 4, 1
            )
            assert await journal.results("x", [(1, (2, 0))]) == [None]

    @scenario
    async def test_a_pause_or_a_resume_is_written_once_by_its_number(self, folder: Path) -> None:
        async with self.make_journal(folder) as journal, self.make_store(folder) as store:

            async def status() -> str:
                summary = await store.execution("x")
                assert summary is not None
                return summary.status

            await journal.accept(accepted())
            first = PauseChanged(2, 1, True)
            assert (await journal.record("x", [first]))[0] is first
            assert await status() == "paused"
            assert list(await journal.record("x", [PauseChanged(3, 1, False)])) == [first]
            assert await status() == "paused"
            assert [each.id for each in await store.executions(ExecutionFilter(status="paused"))] == ["x"]
            await journal.record("x", [PauseChanged(4, 2, False)])
            assert await status() == "running"
            await journal.record("x", [PauseChanged(5, 3, True)])
            await journal.record("x", [ExecutionEnded(6, "cancelled")])
            with pytest.raises(ExecutionEndedError):
                await journal.record("x", [PauseChanged(7, 4, False)])
            assert await status() == "cancelled"

    @scenario
    async def test_signals_controls_and_beginnings_outlive_a_crash(self, folder: Path) -> None:
        facts: list[Fact] = [
            SignalReceived(2, "s", "go", None, Inline(b"1")),
            EffectStarted(1, (), 3, 1),
            PauseChanged(4, 1, True),
        ]
        async with self.make_journal(folder) as journal:
            await journal.accept(accepted())
            for fact in facts:
                await journal.record("x", [fact])
            left = self.crashed(folder)
        for place in (folder, left):
            async with self.make_journal(place) as journal, self.make_store(place) as store:
                assert await journal.signal("x", "s") == facts[0]
                others = (SignalReceived(9, "s", "go"), EffectStarted(1, (), 9, 1), PauseChanged(9, 1, False))
                answers = [(await journal.record("x", [other]))[0] for other in others]
                assert answers == facts
                assert [row.fact for row in await journal.facts("x")] == facts
                summary = await store.execution("x")
                assert summary is not None
                assert summary.status == "paused"
