"""What every journal promises of children: none without a running parent, and no end that stays untold."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from rune.core.execution.fact import AttemptFailed, ExecutionEnded, Fact, NodeResult, NodeSuspended
from rune.core.execution.outcome import Error
from rune.ports.journal import ExecutionEndedError, Journal, Parent, TokenEndedError
from tests.contract.suites.records import TOKEN, JournalSuite, accepted, child, result
from tests.contract.suites.scenario import scenario

GIVEN_UP = Error("E", "over")


async def _family(journal: Journal, *children: str) -> None:
    await journal.accept(accepted("x"))
    for each in children:
        await journal.accept(child(each))


class FamilyContract(JournalSuite):
    """Children and parents."""

    @scenario
    async def test_the_children_of_an_execution_are_those_that_run(self, folder: Path) -> None:
        async with self.make_journal(folder) as journal:
            await _family(journal, "a", "b", "c")
            await journal.accept(accepted("detached", depth=1))
            await journal.accept(child("grandchild", "a"))
            assert sorted(await journal.children("x")) == ["a", "b", "c"]
            assert await journal.children("a") == ["grandchild"]
            assert await journal.children("nobody") == []
            await journal.record("b", [ExecutionEnded(3, "failed", GIVEN_UP)])
            assert sorted(await journal.children("x")) == ["a", "c"]
            assert await journal.accepted("a") == child("a")

    @scenario
    async def test_an_ended_parent_gets_no_child(self, folder: Path) -> None:
        end = ExecutionEnded(3, "halted", GIVEN_UP)
        async with self.make_journal(folder) as journal:
            await _family(journal)
            await journal.record("x", [end])
            with pytest.raises(ExecutionEndedError) as raised:
                await journal.accept(child("a", key="k"), [result(1)])
            assert raised.value.end == end
            assert await journal.accepted("a") is None
            assert (await journal.children("x"), await journal.unreported_children(10)) == ([], [])
            free = accepted("a", key="k", input=b"[]")
            assert await journal.accept(free) is free
            assert await journal.facts("a") == []

    @scenario
    async def test_an_ended_parent_gets_no_child_after_a_restart(self, folder: Path) -> None:
        async with self.make_journal(folder) as journal:
            await _family(journal)
            await journal.record("x", [ExecutionEnded(3, "completed")])
        async with self.make_journal(folder) as journal:
            with pytest.raises(ExecutionEndedError):
                await journal.accept(child("a"))
            assert await journal.accepted("a") is None

    @scenario
    async def test_a_child_that_was_there_before_the_end_is_answered(self, folder: Path) -> None:
        """Whoever makes the attempt again finds the child that it started."""
        async with self.make_journal(folder) as journal:
            await _family(journal, "a")
            await journal.record("x", [ExecutionEnded(3, "completed")])
            assert await journal.accept(child("a")) == child("a")

    @scenario
    async def test_an_attempt_that_is_over_gets_no_child(self, folder: Path) -> None:
        """Somebody slow may want to start one for a token that others have seen to its end; the parent runs on."""
        node, path = TOKEN
        over: dict[str, Fact] = {
            "result": NodeResult(node, path, 5, "failed", failure=GIVEN_UP),
            "attempt": AttemptFailed(node, path, 5, 1, GIVEN_UP),
            "later": AttemptFailed(node, path, 5, 2, GIVEN_UP),
        }
        async with self.make_journal(folder) as journal:
            for name, fact in over.items():
                await journal.accept(accepted(name))
                await journal.record(name, [fact])
                with pytest.raises(TokenEndedError):
                    await journal.accept(child(f"late-{name}", name, key=name), [result(1)])
                assert await journal.accepted(f"late-{name}") is None
                assert await journal.children(name) == []
                free = accepted(f"free-{name}", key=name)
                assert await journal.accept(free) is free

    @scenario
    async def test_rows_of_others_do_not_stop_a_child(self, folder: Path) -> None:
        async with self.make_journal(folder) as journal:
            await _family(journal, "before")
            node, path = TOKEN
            beside = (
                result(node),
                result(node + 1, path=path),
                AttemptFailed(node, path, 5, 1, GIVEN_UP),
                NodeSuspended(node, path, 5, 2),
            )
            for fact in beside:
                await journal.record("x", [fact])
            second = accepted("second", parent=Parent("x", node, path, 2), depth=1)
            assert await journal.accept(second) is second
            await journal.record("x", [result(node, path=path)])
            assert await journal.accept(child("before")) == child("before")
            assert sorted(await journal.children("x")) == ["before", "second"]

    @scenario
    async def test_a_start_and_the_row_of_its_token_are_one_before_the_other(self, folder: Path) -> None:
        """Whoever wrote the row finds every child that there will ever be."""
        async with self.make_journal(folder) as journal:
            await _family(journal)
            names = [f"c{number}" for number in range(20)]
            found: list[str] = []

            async def end() -> None:
                await journal.record("x", [NodeResult(*TOKEN, 5, "cancelled")])
                found.extend(await journal.children("x"))

            starts = [journal.accept(child(name)) for name in names]
            await asyncio.gather(*starts[:10], end(), *starts[10:], return_exceptions=True)
            begun = [name for name in names if await journal.accepted(name) is not None]
            assert sorted(found) == sorted(begun)

    @scenario
    async def test_a_start_and_the_end_of_its_parent_are_one_before_the_other(self, folder: Path) -> None:
        """A child that began is known as one whose parent has ended; one that did not is not there at all."""
        async with self.make_journal(folder) as journal:
            await _family(journal)
            names = [f"c{number}" for number in range(20)]
            starts = [journal.accept(child(name)) for name in names]
            answers = await asyncio.gather(
                *starts[:10],
                journal.record("x", [ExecutionEnded(3, "completed")]),
                *starts[10:],
                return_exceptions=True,
            )
            refused = {
                name
                for name, each in zip(names, [*answers[:10], *answers[11:]], strict=True)
                if isinstance(each, ExecutionEndedError)
            }
            begun = [name for name in names if await journal.accepted(name) is not None]
            assert begun == [name for name in names if name not in refused]
            assert sorted(await journal.unreported_children(100)) == sorted(begun)

    @scenario
    async def test_an_end_is_untold_until_the_parent_knows(self, folder: Path) -> None:
        async with self.make_journal(folder) as journal:
            await _family(journal, "a", "b", "c")
            await journal.accept(accepted("detached", depth=1))
            assert await journal.unreported_children(10) == []
            for each in ("a", "b", "detached"):
                await journal.record(each, [ExecutionEnded(3, "completed")])
            assert sorted(await journal.unreported_children(10)) == ["a", "b"]
            assert len(await journal.unreported_children(1)) == 1
            await journal.mark_reported("a")
            assert await journal.unreported_children(10) == ["b"]
            await journal.mark_reported("a")
            await journal.mark_reported("b")
            assert await journal.unreported_children(10) == []
            assert await journal.children("x") == ["c"]

    @scenario
    async def test_who_runs_on_behind_the_end_of_the_parent_is_found(self, folder: Path) -> None:
        async with self.make_journal(folder) as journal:
            await _family(journal, "a", "b")
            await journal.record("a", [ExecutionEnded(3, "completed")])
            await journal.mark_reported("a")
            await journal.record("x", [ExecutionEnded(4, "cancelled")])
            assert await journal.unreported_children(10) == ["b"]
            assert await journal.children("x") == ["b"]
            await journal.record("b", [ExecutionEnded(5, "cancelled")])
            assert (await journal.unreported_children(10), await journal.children("x")) == (["b"], [])
            await journal.mark_reported("b")
            assert await journal.unreported_children(10) == []

    @scenario
    async def test_who_has_to_be_told_outlives_a_crash(self, folder: Path) -> None:
        async with self.make_journal(folder) as journal:
            await _family(journal, "running", "ended", "told")
            await journal.accept(accepted("y"))
            await journal.accept(child("orphan", "y"))
            for each in ("ended", "told", "y"):
                await journal.record(each, [ExecutionEnded(3, "completed")])
            await journal.mark_reported("told")
            left = self.crashed(folder)
        for place in (folder, left):
            async with self.make_journal(place) as journal:
                assert sorted(await journal.unreported_children(10)) == ["ended", "orphan"]
                assert await journal.children("x") == ["running"]
                with pytest.raises(ExecutionEndedError):
                    await journal.accept(child("late", "y"))
