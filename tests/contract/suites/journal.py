"""Contract of journals: write-once facts, the first writer wins, acknowledged facts are durable."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

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
from rune.core.execution.stored_value import Inline, Large, Paged, Same
from rune.core.execution.token import START
from rune.core.execution.token import Path as Lineage
from rune.ports.journal import ExecutionEndedError, UnknownExecutionError
from rune.ports.queries import ExecutionFilter
from tests.contract.suites.children import ChildContract
from tests.contract.suites.dead_letters import DeadLetterContract
from tests.contract.suites.records import WRITERS, execution_record, result
from tests.contract.suites.starts import StartContract
from tests.support.async_test import async_test


class JournalContract(StartContract, ChildContract, DeadLetterContract):
    """Subclasses open a journal in a folder; opened again there, it has the same content."""

    @async_test
    async def test_record_returns_stored_fact_of_first_writer(self, tmp_path: Path) -> None:
        async with self.make_journal(tmp_path) as journal:
            await journal.accept(execution_record())
            first, second = result(1, b"1"), result(1, b"2")
            assert list(await journal.record("x", [first])) == [first]
            assert list(await journal.record("x", [second])) == [first]
            assert [row.fact for row in await journal.facts("x")] == [first]

    @async_test
    async def test_record_returns_own_object_only_to_winner(self, tmp_path: Path) -> None:
        """Identity marks the winner: an equal fact may come from another writer."""
        async with self.make_journal(tmp_path) as journal:
            await journal.accept(execution_record())
            first, twin = result(1), result(1)
            assert (await journal.record("x", [first]))[0] is first
            assert (await journal.record("x", [twin]))[0] is not twin

    @async_test
    async def test_fact_of_unknown_execution_is_refused(self, tmp_path: Path) -> None:
        async with self.make_journal(tmp_path) as journal:
            with pytest.raises(UnknownExecutionError) as refused:
                await journal.record("unknown", [result(1)])
            assert refused.value.execution == "unknown"

    @async_test
    async def test_concurrent_writers_of_one_fact_have_one_winner(self, tmp_path: Path) -> None:
        async with self.make_journal(tmp_path) as journal:
            await journal.accept(execution_record())
            facts = [result(1, str(number).encode()) for number in range(WRITERS)]
            answers = await asyncio.gather(*(journal.record("x", [each]) for each in facts))
            winners = [own for own, (answer,) in zip(facts, answers, strict=True) if answer is own]
            assert len(winners) == 1
            assert all(answer == winners[0] for (answer,) in answers)

    @async_test
    async def test_batch_is_dropped_when_first_fact_exists(self, tmp_path: Path) -> None:
        async with self.make_journal(tmp_path) as journal:
            await journal.accept(execution_record())
            head = result(1)
            await journal.record("x", [head])
            answer = await journal.record("x", [result(1, b"2"), result(2), result(3)])
            assert list(answer) == [head]
            assert await journal.results("x", [(2, ()), (3, ())]) == [None, None]

    @async_test
    async def test_concurrent_batches_store_one_completely(self, tmp_path: Path) -> None:
        async with self.make_journal(tmp_path) as journal:
            await journal.accept(execution_record())
            batches = [
                [result(node, str(number).encode()) for node in (1, 2, 3)] for number in range(WRITERS)
            ]
            await asyncio.gather(*(journal.record("x", batch) for batch in batches))
            stored = [row.fact for row in await journal.facts("x")]
            assert stored in batches

    @async_test
    async def test_batch_with_existing_tail_stores_head(self, tmp_path: Path) -> None:
        async with self.make_journal(tmp_path) as journal:
            await journal.accept(execution_record())
            tail = result(2, b"before")
            await journal.record("x", [tail])
            head = result(1)
            assert list(await journal.record("x", [head, result(2, b"after")])) == [head]
            assert await journal.results("x", [(1, ()), (2, ())]) == [head, tail]

    @async_test
    async def test_runs_are_recorded_together(self, tmp_path: Path) -> None:
        async with self.make_journal(tmp_path) as journal:
            await journal.accept(execution_record())
            runs = [[result(1), result(2)], [result(3)]]
            answers = await journal.record_all("x", runs)
            assert [list(each) for each in answers if not isinstance(each, BaseException)] == runs
            assert [row.fact for row in await journal.facts("x")] == [*runs[0], *runs[1]]

    @async_test
    async def test_recorded_run_does_not_keep_others_from_being_recorded(self, tmp_path: Path) -> None:
        async with self.make_journal(tmp_path) as journal:
            await journal.accept(execution_record())
            stored = result(2, b"before")
            await journal.record("x", [stored])
            runs = [[result(1)], [result(2, b"after"), result(4)], [result(3)]]
            first, second, third = await journal.record_all("x", runs)
            assert not isinstance(first, BaseException)
            assert not isinstance(second, BaseException)
            assert not isinstance(third, BaseException)
            assert (first[0], list(second), third[0]) == (runs[0][0], [stored], runs[2][0])
            assert first[0] is runs[0][0]
            assert await journal.results("x", [(1, ()), (2, ()), (3, ()), (4, ())]) == [
                runs[0][0],
                stored,
                runs[2][0],
                None,
            ]

    @async_test
    async def test_runs_after_the_end_are_late(self, tmp_path: Path) -> None:
        async with self.make_journal(tmp_path) as journal:
            await journal.accept(execution_record())
            await journal.record("x", [ExecutionEnded(9, "cancelled")])
            answers = await journal.record_all("x", [[result(1)], [result(2)]])
            assert [type(each) for each in answers] == [ExecutionEndedError] * 2
            late = [row.late for row in await journal.facts("x") if isinstance(row.fact, NodeResult)]
            assert late == [True, True]

    @async_test
    async def test_repeated_record_changes_nothing(self, tmp_path: Path) -> None:
        async with self.make_journal(tmp_path) as journal:
            await journal.accept(execution_record())
            batch = [result(1), result(2)]
            await journal.record("x", batch)
            await journal.record("x", batch)
            assert [row.fact for row in await journal.facts("x")] == batch

    @async_test
    async def test_every_kind_of_fact_round_trips(self, tmp_path: Path) -> None:
        facts: list[Fact] = [
            AttemptFailed(1, (2, 0), 2, 1, Error("E", "failed", {"retry_at": 9})),
            AttemptFailed(1, (2, 0), 3, 2, Error("E", "failed")),
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
            AttemptFailed(9, (2, 0), 7, 1, Error("E", "failed"), "another"),
            NodeSuspended(9, (2, 0), 7, attempt=2, due=90, signal="go", deadline=80),
            SignalReceived(7, "s", "go"),
            SignalReceived(8, "key/with ü", "go", (2, 0), Inline(b'{"a": 1}')),
            SignalReceived(8, "large", "go", (), Large("x/signal", 5)),
            PauseChanged(8, 1, True),
            PauseChanged(9, 2, False),
            ExecutionEnded(10, "failed", Error("E", "over")),
        ]
        async with self.make_journal(tmp_path) as journal:
            await journal.accept(execution_record())
            for fact in facts:
                await journal.record("x", [fact])
            assert [row.fact for row in await journal.facts("x")] == facts

    @async_test
    async def test_full_path_is_part_of_key(self, tmp_path: Path) -> None:
        async with self.make_journal(tmp_path) as journal:
            await journal.accept(execution_record())
            paths: list[Lineage] = [(), (1, 0), (1, 256), (1, 0, 2, 0), (1, 1, 2, 0), (2, 0)]
            for number, path in enumerate(paths):
                await journal.record("x", [result(3, str(number).encode(), path)])
            found = await journal.results("x", [(3, path) for path in paths])
            assert [each.value.data for each in found if each] == [b"0", b"1", b"2", b"3", b"4", b"5"]

    @async_test
    async def test_executions_are_independent(self, tmp_path: Path) -> None:
        async with self.make_journal(tmp_path) as journal:
            await journal.accept(execution_record("x"))
            await journal.accept(execution_record("y"))
            await journal.record("x", [result(1, b"x")])
            await journal.record("x", [ExecutionEnded(3, "completed")])
            assert list(await journal.record("y", [result(1, b"y")])) == [result(1, b"y")]
            assert await journal.end("y") is None

    @async_test
    async def test_results_are_returned_in_requested_order(self, tmp_path: Path) -> None:
        async with self.make_journal(tmp_path) as journal:
            await journal.accept(execution_record())
            await journal.record("x", [result(1, b"1"), result(2, b"2")])
            await journal.record("x", [AttemptFailed(3, (), 2, 1, Error("E", ""))])
            found = await journal.results("x", [(2, ()), (3, ()), (1, ())])
            assert found == [result(2, b"2"), None, result(1, b"1")]

    @async_test
    async def test_facts_are_paged_in_commit_order(self, tmp_path: Path) -> None:
        async with self.make_journal(tmp_path) as journal:
            await journal.accept(execution_record())
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

    @async_test
    async def test_concurrent_ends_store_one_end(self, tmp_path: Path) -> None:
        async with self.make_journal(tmp_path) as journal:
            await journal.accept(execution_record())
            ends = [ExecutionEnded(number, "completed") for number in range(10, 10 + WRITERS)]
            answers = await asyncio.gather(
                *(journal.record("x", [end]) for end in ends), return_exceptions=True
            )
            ends_seen = {each.end if isinstance(each, ExecutionEndedError) else each[0] for each in answers}  # type: ignore[index]
            assert len(ends_seen) == 1
            assert await journal.end("x") in ends_seen

    @async_test
    async def test_fact_after_end_is_stored_as_late(self, tmp_path: Path) -> None:
        async with self.make_journal(tmp_path) as journal:
            await journal.accept(execution_record())
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

    @async_test
    async def test_second_end_changes_nothing(self, tmp_path: Path) -> None:
        async with self.make_journal(tmp_path) as journal:
            await journal.accept(execution_record())
            end = ExecutionEnded(5, "halted")
            await journal.record("x", [end])
            try:
                (answer,) = await journal.record("x", [ExecutionEnded(6, "completed")])
            except ExecutionEndedError as ended:
                answer = ended.end
            assert answer == end
            assert [row.fact for row in await journal.facts("x")] == [end]

    @async_test
    async def test_end_survives_restart(self, tmp_path: Path) -> None:
        end = ExecutionEnded(5, "completed")
        async with self.make_journal(tmp_path) as journal:
            await journal.accept(execution_record())
            await journal.record("x", [end])
        async with self.make_journal(tmp_path) as journal:
            assert await journal.end("x") == end
            with pytest.raises(ExecutionEndedError):
                await journal.record("x", [result(2)])

    @async_test
    async def test_acknowledged_facts_survive_crash(self, tmp_path: Path) -> None:
        async with self.make_journal(tmp_path) as journal:
            await journal.save_definition("h", b"{}")
            await journal.accept(execution_record(key="k"))
            await asyncio.gather(*(journal.record("x", [result(node)]) for node in range(WRITERS)))
            crash_copy = self.make_crash_copy(tmp_path)
        async with self.make_journal(crash_copy) as journal:
            assert await journal.accepted("x") == execution_record(key="k")
            assert await journal.definition("h") == b"{}"
            found = await journal.results("x", [(node, ()) for node in range(WRITERS)])
            assert found == [result(node) for node in range(WRITERS)]

    @async_test
    async def test_fact_numbers_continue_after_restart(self, tmp_path: Path) -> None:
        async with self.make_journal(tmp_path) as journal:
            await journal.accept(execution_record())
            await journal.record("x", [result(1), result(2)])
        async with self.make_journal(tmp_path) as journal:
            await journal.accepted("x")
            await journal.record("x", [result(3)])
            rows = await journal.facts("x")
            assert [row.fact.node for row in rows if isinstance(row.fact, NodeResult)] == [1, 2, 3]
            assert rows[2].number > rows[1].number

    @async_test
    async def test_definition_is_stored_once(self, tmp_path: Path) -> None:
        async with self.make_journal(tmp_path) as journal:
            await journal.save_definition("h", b"{}")
            await journal.save_definition("h", b"{}")
            assert await journal.definition("h") == b"{}"
            assert await journal.definition("other") is None

    @async_test
    async def test_record_after_restart_is_rejected_without_prior_read(self, tmp_path: Path) -> None:
        end = ExecutionEnded(5, "completed")
        async with self.make_journal(tmp_path) as journal:
            await journal.accept(execution_record())
            await journal.record("x", [end])
        async with self.make_journal(tmp_path) as journal:
            with pytest.raises(ExecutionEndedError) as raised:
                await journal.record("x", [result(2)])
            assert raised.value.end == end
            assert [row.late for row in await journal.facts("x")] == [False, True]

    @async_test
    async def test_signal_is_stored_once_per_id(self, tmp_path: Path) -> None:
        async with self.make_journal(tmp_path) as journal:
            await journal.accept(execution_record())
            first = SignalReceived(2, "s", "go", (1, 0), Inline(b'{"a": 1}'))
            assert (await journal.record("x", [first]))[0] is first
            again, other = SignalReceived(3, "s", "stop", None, Inline(b"2")), SignalReceived(3, "t", "go")
            assert list(await journal.record("x", [again])) == [first]
            assert list(await journal.record("x", [other])) == [other]
            assert await journal.signal("x", "s") == first
            assert await journal.signal("x", "t") == other
            assert await journal.signal("x", "unknown") is None
            assert [row.fact for row in await journal.facts("x")] == [first, other]

    @async_test
    async def test_concurrent_signals_with_one_id_store_one(self, tmp_path: Path) -> None:
        async with self.make_journal(tmp_path) as journal:
            await journal.accept(execution_record())
            facts = [
                SignalReceived(2, "s", "go", None, Inline(str(number).encode())) for number in range(WRITERS)
            ]
            answers = await asyncio.gather(*(journal.record("x", [each]) for each in facts))
            stored = await journal.signal("x", "s")
            assert all(answer == stored for (answer,) in answers)
            assert [answer is own for own, (answer,) in zip(facts, answers, strict=True)].count(True) == 1

    @async_test
    async def test_signal_id_is_scoped_to_execution(self, tmp_path: Path) -> None:
        async with self.make_journal(tmp_path) as journal:
            await journal.accept(execution_record("x"))
            await journal.accept(execution_record("y"))
            await journal.record("x", [SignalReceived(2, "s", "go", None, Inline(b"1"))])
            facts = SignalReceived(3, "s", "go", None, Inline(b"2"))
            assert await journal.signal("y", "s") is None
            assert list(await journal.record("y", [facts])) == [facts]

    @async_test
    async def test_ended_execution_rejects_signals_and_pauses(self, tmp_path: Path) -> None:
        async with self.make_journal(tmp_path) as journal:
            await journal.accept(execution_record())
            await journal.record("x", [ExecutionEnded(5, "completed")])
            for fact in (SignalReceived(6, "s", "go"), PauseChanged(6, 1, True), EffectStarted(1, (), 6, 1)):
                with pytest.raises(ExecutionEndedError):
                    await journal.record("x", [fact])
            assert [row.late for row in await journal.facts("x")] == [False, True, True, True]

    @async_test
    async def test_effect_start_is_stored_once_per_attempt(self, tmp_path: Path) -> None:
        async with self.make_journal(tmp_path) as journal:
            await journal.accept(execution_record())
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

    @async_test
    async def test_pause_change_is_stored_once_per_number(self, tmp_path: Path) -> None:
        async with self.make_journal(tmp_path) as journal, self.make_store(tmp_path) as store:

            async def status() -> str:
                summary = await store.execution("x")
                assert summary is not None
                return summary.status

            await journal.accept(execution_record())
            first = PauseChanged(2, 1, True)
            assert (await journal.record("x", [first]))[0] is first
            assert await status() == "paused"
            assert list(await journal.record("x", [PauseChanged(3, 1, False)])) == [first]
            assert await status() == "paused"
            assert [each.id for each in await store.executions(ExecutionFilter(statuses=("paused",)))] == [
                "x"
            ]
            await journal.record("x", [PauseChanged(4, 2, False)])
            assert await status() == "running"
            await journal.record("x", [PauseChanged(5, 3, True)])
            await journal.record("x", [ExecutionEnded(6, "cancelled")])
            with pytest.raises(ExecutionEndedError):
                await journal.record("x", [PauseChanged(7, 4, False)])
            assert await status() == "cancelled"

    @async_test
    async def test_signals_pauses_and_effect_starts_survive_crash(self, tmp_path: Path) -> None:
        facts: list[Fact] = [
            SignalReceived(2, "s", "go", None, Inline(b"1")),
            EffectStarted(1, (), 3, 1),
            PauseChanged(4, 1, True),
        ]
        async with self.make_journal(tmp_path) as journal:
            await journal.accept(execution_record())
            for fact in facts:
                await journal.record("x", [fact])
            crash_copy = self.make_crash_copy(tmp_path)
        for folder in (tmp_path, crash_copy):
            async with self.make_journal(folder) as journal, self.make_store(folder) as store:
                assert await journal.signal("x", "s") == facts[0]
                others = (SignalReceived(9, "s", "go"), EffectStarted(1, (), 9, 1), PauseChanged(9, 1, False))
                answers = [(await journal.record("x", [other]))[0] for other in others]
                assert answers == facts
                assert [row.fact for row in await journal.facts("x")] == facts
                summary = await store.execution("x")
                assert summary is not None
                assert summary.status == "paused"

    @async_test
    async def test_open_claims_are_those_of_tokens_without_result(self, tmp_path: Path) -> None:
        async with self.make_journal(tmp_path) as journal:
            await journal.accept(execution_record())
            for node, at in ((1, 10), (2, 20), (3, 30)):
                await journal.count_claim("x", node, (), (7, node), at)
            await journal.count_claim("x", 2, (), (8, 1), 25)
            await journal.record("x", [result(1)])
            await journal.record("x", [ExecutionEnded(40, "halted")])
            with pytest.raises(ExecutionEndedError):
                await journal.record("x", [result(3)])
            # The result of node 3 came too late to count.
            assert await journal.open_claims("x") == {(2, ()): 20, (3, ()): 30}
            assert await journal.last_claims("x") == {(2, ()): 25, (3, ()): 30}
            assert [await journal.claims_of("x", node, ()) for node in (2, 3, 9)] == [2, 1, 0]
            assert await journal.open_claims("unknown") == {}
            assert await journal.last_claims("unknown") == {}
