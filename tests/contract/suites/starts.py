"""Contract of journals for starts: a key or id starts one execution, atomically."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from rune.core.execution.fact import ExecutionEnded, Fact, NodeResult
from rune.core.execution.stored_value import Inline, Large
from rune.core.format import FORMAT
from rune.ports.journal import ExecutionRemovedError, IdempotencyConflictError, NewerFormatError
from tests.contract.suites.records import WRITERS, JournalContractBase, child_record, execution_record, result
from tests.support.async_test import async_test


def _kept_results(count: int, value: bytes = b"1") -> list[Fact]:
    return [NodeResult(node, (), 1, "ok", value=Inline(value), kept=True) for node in range(count, 0, -1)]


class StartContract(JournalContractBase):
    """Starts of executions."""

    @async_test
    async def test_accepted_of_unknown_execution_returns_none(self, tmp_path: Path) -> None:
        async with self.make_journal(tmp_path) as journal:
            assert await journal.accepted("unknown") is None

    @async_test
    async def test_idempotency_key_starts_one_execution(self, tmp_path: Path) -> None:
        async with self.make_journal(tmp_path) as journal:
            records = [execution_record(f"x{number}", key="k") for number in range(WRITERS)]
            answers = await asyncio.gather(*(journal.accept(each) for each in records))
            assert len({each.id for each in answers}) == 1
            assert (await journal.accept(execution_record("late", key="k"))).id == answers[0].id
            assert await journal.accepted("late") is None
            known = [each.id for each in records if await journal.accepted(each.id) is not None]
            assert known == [answers[0].id]

    @async_test
    async def test_idempotency_key_with_different_start_is_rejected(self, tmp_path: Path) -> None:
        async with self.make_journal(tmp_path) as journal:
            await journal.accept(execution_record("x", key="k"))
            others: tuple[dict[str, object], ...] = ({"input": Inline(b"[1]")}, {"hash": "h2"})
            for number, other in enumerate(others):
                with pytest.raises(IdempotencyConflictError):
                    await journal.accept(execution_record(f"y{number}", key="k", **other))
                assert await journal.accepted(f"y{number}") is None
            await journal.record("x", [result(1)])

    @async_test
    async def test_execution_of_an_idempotency_key_is_known(self, tmp_path: Path) -> None:
        async with self.make_journal(tmp_path) as journal:
            await journal.accept(execution_record("x", key="k"))
            assert [await journal.keyed(each) for each in ("k", "x", "k\0")] == ["x", None, None]

    @async_test
    async def test_key_conflict_does_not_affect_concurrent_starts(self, tmp_path: Path) -> None:
        """Concurrent writes share a transaction; an invalid one must not fail the others."""
        async with self.make_journal(tmp_path) as journal:
            await journal.accept(execution_record("x", key="k"))
            records = [execution_record(f"n{number}") for number in range(20)]
            bad = execution_record("bad", key="k", input=Inline(b"[]"))
            answers = await asyncio.gather(
                *(journal.accept(each) for each in [*records[:10], bad, *records[10:]]),
                return_exceptions=True,
            )
            assert [type(each) for each in answers].count(IdempotencyConflictError) == 1
            assert all([await journal.accepted(each.id) == each for each in records])

    @async_test
    async def test_record_of_newer_format_is_rejected(self, tmp_path: Path) -> None:
        async with self.make_journal(tmp_path) as journal:
            await journal.accept(execution_record("new", format=FORMAT + 1))
            await journal.accept(execution_record("old"))
        async with self.make_journal(tmp_path) as journal:
            for _ in range(2):
                with pytest.raises(NewerFormatError):
                    await journal.accepted("new")
            assert await journal.accepted("old") == execution_record("old")

    @async_test
    async def test_all_fields_of_record_survive_crash(self, tmp_path: Path) -> None:
        parent = execution_record("p")
        record = child_record(
            "x", "p", key="k", labels={"a": "b"}, priority=9, fake_time=True, root="first", retry_of="before"
        )
        async with self.make_journal(tmp_path) as journal:
            await journal.accept(parent)
            assert await journal.accept(record) is record
            assert await journal.accepted("x") == record
            crash_copy = self.make_crash_copy(tmp_path)
        for folder in (tmp_path, crash_copy):
            async with self.make_journal(folder) as journal:
                assert await journal.accepted("x") == record

    @async_test
    async def test_start_with_facts_is_atomic(self, tmp_path: Path) -> None:
        kept = _kept_results(100)
        records = execution_record(root="first", retry_of="first")
        async with self.make_journal(tmp_path) as journal:
            assert await journal.accept(records, kept) is records
            crash_copy = self.make_crash_copy(tmp_path)
        for folder in (tmp_path, crash_copy):
            async with self.make_journal(folder) as journal:
                assert await journal.accepted("x") == records
                assert [row.fact for row in await journal.facts("x")] == kept
                assert not any(row.late for row in await journal.facts("x"))
                keys = [(each.node, each.path) for each in kept if isinstance(each, NodeResult)]
                assert await journal.results("x", keys) == kept

    @async_test
    async def test_initial_facts_are_write_once(self, tmp_path: Path) -> None:
        async with self.make_journal(tmp_path) as journal:
            kept = _kept_results(2)
            await journal.accept(execution_record(), kept)
            assert list(await journal.record("x", [result(1, b"2")])) == [kept[1]]
            await journal.record("x", [result(3)])
            rows = await journal.facts("x")
            assert [row.fact for row in rows] == [*kept, result(3)]
            assert await journal.facts("x", after=rows[1].number) == rows[2:]

    @async_test
    async def test_rejected_start_leaves_no_rows(self, tmp_path: Path) -> None:
        """One of its facts references a blob of an unknown execution."""
        large = NodeResult(3, (), 1, "ok", value=Large("unknown/3", 5), kept=True)
        async with self.make_journal(tmp_path) as journal:
            with pytest.raises(ExecutionRemovedError):
                await journal.accept(execution_record("x", key="k"), [*_kept_results(2), large])
            assert await journal.accepted("x") is None
            other = execution_record("y", key="k", input=Inline(b"[]"))
            assert await journal.accept(other, _kept_results(1)) is other
            assert await journal.accept(execution_record("x"), _kept_results(1)) == execution_record("x")
            assert [row.fact for row in await journal.facts("x")] == _kept_results(1)

    @async_test
    async def test_accept_of_known_id_returns_existing_record(self, tmp_path: Path) -> None:
        first = execution_record("x", input=Inline(b"[1]"), labels={"first": "yes"})
        async with self.make_journal(tmp_path) as journal:
            await journal.accept(execution_record("p"))
            assert await journal.accept(first) is first
            await journal.record("x", [result(1)])
            again = (
                execution_record("x"),
                execution_record("x", key="k"),
                child_record("x", "p"),
                execution_record("x", retry_of="p"),
            )
            for each in again:
                assert await journal.accept(each) == first
            assert await journal.accept(execution_record("x"), _kept_results(3)) == first
            assert await journal.accepted("x") == first
            assert [row.fact for row in await journal.facts("x")] == [result(1)]
            assert await journal.children("p") == []
            free = execution_record("y", key="k")
            assert await journal.accept(free) is free

    @async_test
    async def test_concurrent_starts_of_one_id_store_one_completely(self, tmp_path: Path) -> None:
        async with self.make_journal(tmp_path) as journal:
            records = [execution_record("x", labels={"n": str(number)}) for number in range(WRITERS)]
            kept = [_kept_results(3, str(number).encode()) for number in range(WRITERS)]
            answers = await asyncio.gather(
                *(journal.accept(each, facts) for each, facts in zip(records, kept, strict=True))
            )
            winners = [number for number in range(WRITERS) if answers[number] is records[number]]
            assert len(winners) == 1
            assert all(answer == records[winners[0]] for answer in answers)
            assert [row.fact for row in await journal.facts("x")] == kept[winners[0]]

    @async_test
    async def test_repeated_start_does_not_disturb_concurrent_writes(self, tmp_path: Path) -> None:
        async with self.make_journal(tmp_path) as journal:
            await journal.accept(execution_record("x"))
            await asyncio.gather(
                *(
                    each
                    for node in range(WRITERS)
                    for each in (journal.accept(execution_record("x")), journal.record("x", [result(node)]))
                )
            )
            found = await journal.results("x", [(node, ()) for node in range(WRITERS)])
            assert found == [result(node) for node in range(WRITERS)]

    @async_test
    async def test_concurrent_starts_of_one_id_without_facts_have_one_winner(self, tmp_path: Path) -> None:
        async with self.make_journal(tmp_path) as journal:
            records = [execution_record("x", labels={"n": str(number)}) for number in range(WRITERS)]
            answers = await asyncio.gather(*(journal.accept(each) for each in records))
            winners = [own for own, answer in zip(records, answers, strict=True) if answer is own]
            assert len(winners) == 1
            assert all(answer == winners[0] for answer in answers)
            await journal.record("x", [result(1)])
            assert [row.fact for row in await journal.facts("x")] == [result(1)]

    @async_test
    async def test_idempotency_key_stores_initial_facts_once(self, tmp_path: Path) -> None:
        async with self.make_journal(tmp_path) as journal:
            first = execution_record("x", key="k")
            await journal.accept(first, _kept_results(2))
            assert await journal.accept(execution_record("y", key="k"), _kept_results(3)) == first
            assert await journal.accepted("y") is None
            assert [row.fact for row in await journal.facts("x")] == _kept_results(2)
            await journal.record("x", [ExecutionEnded(5, "completed")])
            assert await journal.accept(execution_record("z", key="k"), _kept_results(3)) == first
