"""Contract of journals for child executions: the parent runs, and every end is reported to it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from rune.core.execution.fact import AttemptFailed, ExecutionEnded, Fact, NodeResult, NodeSuspended
from rune.core.execution.outcome import Error
from rune.core.execution.stored_value import Inline
from rune.ports.journal import ExecutionEndedError, Journal, Parent, TokenEndedError
from tests.contract.suites.records import TOKEN, JournalContractBase, child_record, execution_record, result
from tests.support.async_test import async_test

FAILURE = Error("E", "over")


async def _accept_family(journal: Journal, *children: str) -> None:
    await journal.accept(execution_record("x"))
    for each in children:
        await journal.accept(child_record(each))


class ChildContract(JournalContractBase):
    """Child executions and their parents."""

    @async_test
    async def test_children_lists_running_children_only(self, tmp_path: Path) -> None:
        async with self.make_journal(tmp_path) as journal:
            await _accept_family(journal, "a", "b", "c")
            await journal.accept(execution_record("detached", depth=1))
            await journal.accept(child_record("grandchild", "a"))
            assert sorted(await journal.children("x")) == ["a", "b", "c"]
            assert await journal.children("a") == ["grandchild"]
            assert await journal.children("unknown") == []
            await journal.record("b", [ExecutionEnded(3, "failed", FAILURE)])
            assert sorted(await journal.children("x")) == ["a", "c"]
            assert await journal.accepted("a") == child_record("a")

    @async_test
    async def test_child_of_ended_parent_is_rejected(self, tmp_path: Path) -> None:
        end = ExecutionEnded(3, "halted", FAILURE)
        async with self.make_journal(tmp_path) as journal:
            await _accept_family(journal)
            await journal.record("x", [end])
            with pytest.raises(ExecutionEndedError) as raised:
                await journal.accept(child_record("a", key="k"), [result(1)])
            assert raised.value.end == end
            assert await journal.accepted("a") is None
            assert (await journal.children("x"), await journal.unreported_children(10)) == ([], [])
            free = execution_record("a", key="k", input=Inline(b"[]"))
            assert await journal.accept(free) is free
            assert await journal.facts("a") == []

    @async_test
    async def test_child_of_ended_parent_is_rejected_after_restart(self, tmp_path: Path) -> None:
        async with self.make_journal(tmp_path) as journal:
            await _accept_family(journal)
            await journal.record("x", [ExecutionEnded(3, "completed")])
        async with self.make_journal(tmp_path) as journal:
            with pytest.raises(ExecutionEndedError):
                await journal.accept(child_record("a"))
            assert await journal.accepted("a") is None

    @async_test
    async def test_accept_of_existing_child_after_parent_end_returns_it(self, tmp_path: Path) -> None:
        """A repeated attempt finds the child that the first one started."""
        async with self.make_journal(tmp_path) as journal:
            await _accept_family(journal, "a")
            await journal.record("x", [ExecutionEnded(3, "completed")])
            assert await journal.accept(child_record("a")) == child_record("a")

    @async_test
    async def test_child_of_ended_attempt_is_rejected(self, tmp_path: Path) -> None:
        """A slow worker may start a child for a token that has ended meanwhile; the parent is still running."""
        node, path = TOKEN
        over: dict[str, Fact] = {
            "result": NodeResult(node, path, 5, "failed", failure=FAILURE),
            "attempt": AttemptFailed(node, path, 5, 1, FAILURE),
            "later": AttemptFailed(node, path, 5, 2, FAILURE),
        }
        async with self.make_journal(tmp_path) as journal:
            for name, fact in over.items():
                await journal.accept(execution_record(name))
                await journal.record(name, [fact])
                with pytest.raises(TokenEndedError):
                    await journal.accept(child_record(f"late-{name}", name, key=name), [result(1)])
                assert await journal.accepted(f"late-{name}") is None
                assert await journal.children(name) == []
                free = execution_record(f"free-{name}", key=name)
                assert await journal.accept(free) is free

    @async_test
    async def test_facts_of_other_tokens_do_not_reject_child(self, tmp_path: Path) -> None:
        async with self.make_journal(tmp_path) as journal:
            await _accept_family(journal, "before")
            node, path = TOKEN
            unrelated = (
                result(node),
                result(node + 1, path=path),
                AttemptFailed(node, path, 5, 1, FAILURE),
                NodeSuspended(node, path, 5, 2),
            )
            for fact in unrelated:
                await journal.record("x", [fact])
            second = execution_record("second", parent=Parent("x", node, path, 2), depth=1)
            assert await journal.accept(second) is second
            await journal.record("x", [result(node, path=path)])
            assert await journal.accept(child_record("before")) == child_record("before")
            assert sorted(await journal.children("x")) == ["before", "second"]

    @async_test
    async def test_child_start_and_token_result_are_serialized(self, tmp_path: Path) -> None:
        """After the result is recorded no further child can start."""
        async with self.make_journal(tmp_path) as journal:
            await _accept_family(journal)
            names = [f"c{number}" for number in range(20)]
            found: list[str] = []

            async def end() -> None:
                await journal.record("x", [NodeResult(*TOKEN, 5, "cancelled")])
                found.extend(await journal.children("x"))

            starts = [journal.accept(child_record(name)) for name in names]
            await asyncio.gather(*starts[:10], end(), *starts[10:], return_exceptions=True)
            started = [name for name in names if await journal.accepted(name) is not None]
            assert sorted(found) == sorted(started)

    @async_test
    async def test_child_start_and_parent_end_are_serialized(self, tmp_path: Path) -> None:
        """A child that started is listed as unreported; a rejected one leaves no record."""
        async with self.make_journal(tmp_path) as journal:
            await _accept_family(journal)
            names = [f"c{number}" for number in range(20)]
            starts = [journal.accept(child_record(name)) for name in names]
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
            started = [name for name in names if await journal.accepted(name) is not None]
            assert started == [name for name in names if name not in refused]
            assert sorted(await journal.unreported_children(100)) == sorted(started)

    @async_test
    async def test_ended_child_is_unreported_until_marked(self, tmp_path: Path) -> None:
        async with self.make_journal(tmp_path) as journal:
            await _accept_family(journal, "a", "b", "c")
            await journal.accept(execution_record("detached", depth=1))
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

    @async_test
    async def test_running_child_of_ended_parent_is_unreported(self, tmp_path: Path) -> None:
        async with self.make_journal(tmp_path) as journal:
            await _accept_family(journal, "a", "b")
            await journal.record("a", [ExecutionEnded(3, "completed")])
            await journal.mark_reported("a")
            await journal.record("x", [ExecutionEnded(4, "cancelled")])
            assert await journal.unreported_children(10) == ["b"]
            assert await journal.children("x") == ["b"]
            await journal.record("b", [ExecutionEnded(5, "cancelled")])
            assert (await journal.unreported_children(10), await journal.children("x")) == (["b"], [])
            await journal.mark_reported("b")
            assert await journal.unreported_children(10) == []

    @async_test
    async def test_unreported_children_survive_crash(self, tmp_path: Path) -> None:
        async with self.make_journal(tmp_path) as journal:
            await _accept_family(journal, "running", "ended", "reported")
            await journal.accept(execution_record("y"))
            await journal.accept(child_record("orphan", "y"))
            for each in ("ended", "reported", "y"):
                await journal.record(each, [ExecutionEnded(3, "completed")])
            await journal.mark_reported("reported")
            crash_copy = self.make_crash_copy(tmp_path)
        for folder in (tmp_path, crash_copy):
            async with self.make_journal(folder) as journal:
                assert sorted(await journal.unreported_children(10)) == ["ended", "orphan"]
                assert await journal.children("x") == ["running"]
                with pytest.raises(ExecutionEndedError):
                    await journal.accept(child_record("late", "y"))
