"""What every journal promises of starts: a key or an id starts one execution, and a start is one act."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from rune.codec.facts import Inline, Large
from rune.core.execution.fact import ExecutionEnded, Fact, NodeResult
from rune.ports.journal import FORMAT, ExecutionRemovedError, IdempotencyConflictError, NewerFormatError
from tests.contract.suites.records import WRITERS, JournalSuite, accepted, child, result
from tests.contract.suites.scenario import scenario


def _kept(count: int, value: bytes = b"1") -> list[Fact]:
    return [NodeResult(node, (), 1, "ok", value=Inline(value), kept=True) for node in range(count, 0, -1)]


class StartContract(JournalSuite):
    """The starts of executions."""

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
                with pytest.raises(IdempotencyConflictError):
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
            assert [type(each) for each in answers].count(IdempotencyConflictError) == 1
            assert all([await journal.accepted(each.id) == each for each in wanted])

    @scenario
    async def test_what_a_newer_version_wrote_is_refused_and_left_alone(self, folder: Path) -> None:
        async with self.make_journal(folder) as journal:
            await journal.accept(accepted("new", format=FORMAT + 1))
            await journal.accept(accepted("old"))
        async with self.make_journal(folder) as journal:
            for _ in range(2):
                with pytest.raises(NewerFormatError):
                    await journal.accepted("new")
            assert await journal.accepted("old") == accepted("old")

    @scenario
    async def test_everything_that_was_said_at_the_start_is_kept(self, folder: Path) -> None:
        parent = accepted("p")
        whole = child(
            "x", "p", key="k", labels={"a": "b"}, priority=9, fake_time=True, root="first", retry_of="before"
        )
        async with self.make_journal(folder) as journal:
            await journal.accept(parent)
            assert await journal.accept(whole) is whole
            assert await journal.accepted("x") == whole
            left = self.crashed(folder)
        for place in (folder, left):
            async with self.make_journal(place) as journal:
                assert await journal.accepted("x") == whole

    @scenario
    async def test_a_start_with_facts_is_one_act(self, folder: Path) -> None:
        kept = _kept(100)
        wanted = accepted(root="first", retry_of="first")
        async with self.make_journal(folder) as journal:
            assert await journal.accept(wanted, kept) is wanted
            left = self.crashed(folder)
        for place in (folder, left):
            async with self.make_journal(place) as journal:
                assert await journal.accepted("x") == wanted
                assert [row.fact for row in await journal.facts("x")] == kept
                assert not any(row.late for row in await journal.facts("x"))
                keys = [(each.node, each.path) for each in kept if isinstance(each, NodeResult)]
                assert await journal.results("x", keys) == kept

    @scenario
    async def test_what_an_execution_begins_with_is_written_once_like_any_other_fact(
        self, folder: Path
    ) -> None:
        async with self.make_journal(folder) as journal:
            kept = _kept(2)
            await journal.accept(accepted(), kept)
            assert list(await journal.record("x", [result(1, b"2")])) == [kept[1]]
            await journal.record("x", [result(3)])
            rows = await journal.facts("x")
            assert [row.fact for row in rows] == [*kept, result(3)]
            assert await journal.facts("x", after=rows[1].number) == rows[2:]

    @scenario
    async def test_a_start_that_is_refused_leaves_nothing(self, folder: Path) -> None:
        """One of its facts names a blob of an execution that is not there."""
        large = NodeResult(3, (), 1, "ok", value=Large("nobody/3", 5), kept=True)
        async with self.make_journal(folder) as journal:
            with pytest.raises(ExecutionRemovedError):
                await journal.accept(accepted("x", key="k"), [*_kept(2), large])
            assert await journal.accepted("x") is None
            other = accepted("y", key="k", input=b"[]")
            assert await journal.accept(other, _kept(1)) is other
            assert await journal.accept(accepted("x"), _kept(1)) == accepted("x")
            assert [row.fact for row in await journal.facts("x")] == _kept(1)

    @scenario
    async def test_a_known_id_answers_the_one_that_it_started(self, folder: Path) -> None:
        first = accepted("x", input=b"[1]", labels={"first": "yes"})
        async with self.make_journal(folder) as journal:
            await journal.accept(accepted("p"))
            assert await journal.accept(first) is first
            await journal.record("x", [result(1)])
            again = (accepted("x"), accepted("x", key="k"), child("x", "p"), accepted("x", retry_of="p"))
            for each in again:
                assert await journal.accept(each) == first
            assert await journal.accept(accepted("x"), _kept(3)) == first
            assert await journal.accepted("x") == first
            assert [row.fact for row in await journal.facts("x")] == [result(1)]
            assert await journal.children("p") == []
            free = accepted("y", key="k")
            assert await journal.accept(free) is free

    @scenario
    async def test_of_many_starts_of_one_id_one_is_written_whole(self, folder: Path) -> None:
        async with self.make_journal(folder) as journal:
            wanted = [accepted("x", labels={"n": str(number)}) for number in range(WRITERS)]
            kept = [_kept(3, str(number).encode()) for number in range(WRITERS)]
            answers = await asyncio.gather(
                *(journal.accept(each, facts) for each, facts in zip(wanted, kept, strict=True))
            )
            winners = [number for number in range(WRITERS) if answers[number] is wanted[number]]
            assert len(winners) == 1
            assert all(answer == wanted[winners[0]] for answer in answers)
            assert [row.fact for row in await journal.facts("x")] == kept[winners[0]]

    @scenario
    async def test_who_starts_a_known_id_again_does_not_disturb_it(self, folder: Path) -> None:
        async with self.make_journal(folder) as journal:
            await journal.accept(accepted("x"))
            await asyncio.gather(
                *(
                    each
                    for node in range(WRITERS)
                    for each in (journal.accept(accepted("x")), journal.record("x", [result(node)]))
                )
            )
            found = await journal.results("x", [(node, ()) for node in range(WRITERS)])
            assert found == [result(node) for node in range(WRITERS)]

    @scenario
    async def test_many_starts_of_one_id_without_anything_else_are_one(self, folder: Path) -> None:
        async with self.make_journal(folder) as journal:
            wanted = [accepted("x", labels={"n": str(number)}) for number in range(WRITERS)]
            answers = await asyncio.gather(*(journal.accept(each) for each in wanted))
            winners = [own for own, answer in zip(wanted, answers, strict=True) if answer is own]
            assert len(winners) == 1
            assert all(answer == winners[0] for answer in answers)
            await journal.record("x", [result(1)])
            assert [row.fact for row in await journal.facts("x")] == [result(1)]

    @scenario
    async def test_a_client_key_starts_what_it_began_with_once(self, folder: Path) -> None:
        async with self.make_journal(folder) as journal:
            first = accepted("x", key="k")
            await journal.accept(first, _kept(2))
            assert await journal.accept(accepted("y", key="k"), _kept(3)) == first
            assert await journal.accepted("y") is None
            assert [row.fact for row in await journal.facts("x")] == _kept(2)
            await journal.record("x", [ExecutionEnded(5, "completed")])
            assert await journal.accept(accepted("z", key="k"), _kept(3)) == first
