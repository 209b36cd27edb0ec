"""Tables of the PostgreSQL journal besides the facts: running executions, claims and the outbox."""

from __future__ import annotations

from pathlib import Path

import pytest

from rune.adapters.postgres.journal import RunningExecution
from rune.adapters.postgres.stores import postgres
from rune.core.execution.fact import AttemptFailed, ExecutionEnded, Fact, NodeSuspended, PauseChanged
from rune.core.execution.outcome import Error
from rune.ports.retention import Rule
from tests.contract.suites.records import execution_record, result
from tests.support.async_test import async_test
from tests.support.services.databases import dsn_of, ready
from tests.support.services.postgres import database_of, server
from tests.support.waiting import until


@pytest.fixture(autouse=True, scope="module")
def _running() -> None:
    ready()


class TestJournalTables:
    @async_test
    async def test_running_lists_executions_with_next_due_time(self, tmp_path: Path) -> None:
        async with postgres(dsn_of(tmp_path)) as found:
            journal = found.journal
            for name in "abcdefg":
                await journal.accept(execution_record(name))
            await journal.record("b", [NodeSuspended(1, (), 2, due=500)])
            await journal.record("b", [NodeSuspended(2, (), 2, signal="go", deadline=300)])
            await journal.record("c", [NodeSuspended(1, (), 2, due=500)])
            await journal.record("c", [result(1)])
            await journal.record("d", [AttemptFailed(1, (), 7, 1, Error("E", "", {"retry_at": 90}))])
            await journal.record("e", [AttemptFailed(1, (), 7, 1, Error("E", "", {"retry_at": 90}))])
            await journal.record("e", [AttemptFailed(1, (), 200, 2, Error("E", ""))])
            await journal.record("f", [NodeSuspended(1, (), 2, due=500)])
            await journal.record("f", [ExecutionEnded(3, "cancelled")])
            paused: list[Fact] = [NodeSuspended(1, (), 2, signal="go"), PauseChanged(3, 1, True)]
            await journal.record("g", paused)
            due = {"a": None, "b": 300, "c": None, "d": 90, "e": 200, "g": None}
            assert await journal.running() == [RunningExecution(*each) for each in due.items()]
            assert [each.id for each in await journal.running("b", 2)] == ["c", "d"]

    @async_test
    async def test_claims_are_counted_per_token(self, tmp_path: Path) -> None:
        async with postgres(dsn_of(tmp_path)) as found:
            journal = found.journal
            await journal.accept(execution_record())
            assert await journal.count_claim("x", 1, (2, 0), (7, 1), 5) == 1
            await journal.record("x", [result(9)])
            assert await journal.count_claim("x", 1, (2, 0), (7, 2), 6, durable=True) == 2
            assert await journal.count_claim("x", 1, (2, 0), (7, 2), 6, durable=True) == 2
            assert await journal.count_claim("x", 1, (2, 0), (2**40, 1), 6, durable=True) == 3
            await journal.count_claim("x", 4, (), (7, 1), 6)
        async with postgres(dsn_of(tmp_path)) as found:
            assert await found.index.claims("x") == {(1, (2, 0)): 3, (4, ()): 1}

    @async_test
    async def test_claim_is_written_although_its_process_records_nothing(self, tmp_path: Path) -> None:
        async with postgres(dsn_of(tmp_path)) as worker, postgres(dsn_of(tmp_path)) as other:
            await worker.journal.accept(execution_record())
            await worker.journal.count_claim("x", 1, (), (7, 1), 5)

            async def written() -> bool:
                return await other.journal.open_claims("x") == {(1, ()): 5}

            await until(written, "the other process reads the claim", 30.0)

    @async_test
    async def test_start_restores_definition_removed_by_other_process(self, tmp_path: Path) -> None:
        async with postgres(dsn_of(tmp_path)) as one, postgres(dsn_of(tmp_path)) as two:
            await one.journal.save_definition("h", b"{}")
            assert (await two.retention.collect([Rule(keep=0)], 10)).definitions == 1
            await one.journal.accept(execution_record())
            assert await two.journal.definition("h") == b"{}"
            assert (await two.retention.collect([Rule(keep=0)], 10)).definitions == 0


def expire_end_notices(folder: Path) -> None:
    """Make end notices available to the relay, as if their writer had died."""
    server().sql("UPDATE outbox SET until = 0 WHERE kind = 'end'", database_of(folder))


class TestOutbox:
    @async_test
    async def test_end_notice_is_taken_by_one_relay(self, tmp_path: Path) -> None:
        async with postgres(dsn_of(tmp_path)) as one, postgres(dsn_of(tmp_path)) as two:
            for name in "abc":
                await one.journal.accept(execution_record(name))
                await one.journal.record(name, [ExecutionEnded(3, "completed")])
            assert await one.outbox.take(10) == []  # its writer may still publish it
            expire_end_notices(tmp_path)
            mine = await one.outbox.take(2)
            others = await two.outbox.take(10)
            assert [each.execution for each in mine] == ["a", "b"]
            assert [(each.execution, each.kind) for each in others] == [("c", "end")]
            assert await one.outbox.take(10) == []
            assert await one.outbox.keep(mine[0].number, b"first") == b"first"
            assert await two.outbox.keep(mine[0].number, b"second") == b"first"
            await one.outbox.done([mine[1].number])
            await one.outbox.done([mine[1].number])

    @async_test
    async def test_rows_of_dead_relay_are_taken_again(self, tmp_path: Path) -> None:
        async with postgres(dsn_of(tmp_path)) as found:
            await found.journal.accept(execution_record())
            await found.journal.record("x", [ExecutionEnded(3, "completed")])
            expire_end_notices(tmp_path)
            (notice,) = await found.outbox.take(10, held=0)
            await found.outbox.keep(notice.number, b"message")
            (again,) = await found.outbox.take(10, held=0)
            assert (again.number, again.body) == (notice.number, b"message")
            await found.outbox.done([again.number])
            assert await found.outbox.take(10, held=0) == []

    @async_test
    async def test_h_i1_unopened_start_is_taken_by_relay(self, tmp_path: Path) -> None:
        """Fails if a start leaves no row in the outbox."""
        async with postgres(dsn_of(tmp_path)) as found:
            await found.journal.accept(execution_record("opened"))
            await found.journal.accept(execution_record("unopened"))
            await found.outbox.mark_done("opened", "start")
            assert await found.outbox.take(10) == []  # its writer may still open it
            server().sql("UPDATE outbox SET until = 0", database_of(tmp_path))
            assert [(each.execution, each.kind) for each in await found.outbox.take(10)] == [
                ("unopened", "start")
            ]
