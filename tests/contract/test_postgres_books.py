"""What the journal in PostgreSQL keeps beside the facts: who runs, who was claimed, what has to be said to others."""

from __future__ import annotations

from pathlib import Path

import pytest

from rune.adapters.postgres.journal import RunningExecution
from rune.adapters.postgres.stores import postgres
from rune.core.execution.fact import AttemptFailed, ExecutionEnded, NodeSuspended, PauseChanged
from rune.core.execution.outcome import Error
from rune.ports.retention import Rule
from tests.contract.suites.records import accepted, result
from tests.contract.suites.scenario import scenario
from tests.support.services.databases import dsn_of, ready
from tests.support.services.postgres import database_of, server


@pytest.fixture(autouse=True, scope="module")
def _running() -> None:
    ready()


class TestBooks:
    @scenario
    async def test_those_that_run_are_listed_with_what_they_wait_for(self, folder: Path) -> None:
        async with postgres(dsn_of(folder)) as found:
            journal = found.journal
            for name in "abcdefg":
                await journal.accept(accepted(name))
            await journal.record("b", [NodeSuspended(1, (), 2, due=500)])
            await journal.record("b", [NodeSuspended(2, (), 2, signal="go", deadline=300)])
            await journal.record("c", [NodeSuspended(1, (), 2, due=500)])
            await journal.record("c", [result(1)])
            await journal.record("d", [AttemptFailed(1, (), 7, 1, Error("E", "", {"retry_at": 90}))])
            await journal.record("e", [AttemptFailed(1, (), 7, 1, Error("E", "", {"retry_at": 90}))])
            await journal.record("e", [AttemptFailed(1, (), 200, 2, Error("E", ""))])
            await journal.record("f", [NodeSuspended(1, (), 2, due=500)])
            await journal.record("f", [ExecutionEnded(3, "cancelled")])
            await journal.record("g", [NodeSuspended(1, (), 2, signal="go"), PauseChanged(3, 1, True)])
            due = {"a": None, "b": 300, "c": None, "d": 90, "e": 200, "g": None}
            assert await journal.running() == [RunningExecution(*each) for each in due.items()]
            assert [each.id for each in await journal.running("b", 2)] == ["c", "d"]

    @scenario
    async def test_claims_go_along_with_facts_and_are_counted(self, folder: Path) -> None:
        async with postgres(dsn_of(folder)) as found:
            journal = found.journal
            await journal.accept(accepted())
            assert await journal.count_claim("x", 1, (2, 0), (7, 1), 5) == 1
            await journal.record("x", [result(9)])
            assert await journal.count_claim("x", 1, (2, 0), (7, 2), 6, durable=True) == 2
            assert await journal.count_claim("x", 1, (2, 0), (7, 2), 6, durable=True) == 2
            assert await journal.count_claim("x", 1, (2, 0), (2**40, 1), 6, durable=True) == 3
            await journal.count_claim("x", 4, (), (7, 1), 6)
        async with postgres(dsn_of(folder)) as found:
            assert await found.index.claims("x") == {(1, (2, 0)): 3, (4, ()): 1}

    @scenario
    async def test_a_definition_that_another_process_removed_is_there_when_a_start_names_it(
        self, folder: Path
    ) -> None:
        async with postgres(dsn_of(folder)) as one, postgres(dsn_of(folder)) as two:
            await one.journal.save_definition("h", b"{}")
            assert (await two.retention.collect([Rule(keep=0)], 10)).definitions == 1
            await one.journal.accept(accepted())
            assert await two.journal.definition("h") == b"{}"
            assert (await two.retention.collect([Rule(keep=0)], 10)).definitions == 0


def left_lying(folder: Path) -> None:
    """Ends that whoever wrote them has not seen to."""
    server().sql("UPDATE outbox SET until = 0 WHERE kind = 'end'", database_of(folder))


class TestOutbox:
    @scenario
    async def test_an_end_is_there_until_it_is_done(self, folder: Path) -> None:
        async with postgres(dsn_of(folder)) as one, postgres(dsn_of(folder)) as two:
            for name in "abc":
                await one.journal.accept(accepted(name))
                await one.journal.record(name, [ExecutionEnded(3, "completed")])
            assert await one.outbox.take(10) == []  # whoever ended it may still be about to
            left_lying(folder)
            mine = await one.outbox.take(2)
            others = await two.outbox.take(10)
            assert [each.execution for each in mine] == ["a", "b"]
            assert [(each.execution, each.kind) for each in others] == [("c", "end")]
            assert await one.outbox.take(10) == []
            assert await one.outbox.keep(mine[0].number, b"first") == b"first"
            assert await two.outbox.keep(mine[0].number, b"second") == b"first"
            await one.outbox.done([mine[1].number])
            await one.outbox.done([mine[1].number])

    @scenario
    async def test_a_relay_that_dies_leaves_its_rows_to_the_next(self, folder: Path) -> None:
        async with postgres(dsn_of(folder)) as found:
            await found.journal.accept(accepted())
            await found.journal.record("x", [ExecutionEnded(3, "completed")])
            left_lying(folder)
            (notice,) = await found.outbox.take(10, held=0)
            await found.outbox.keep(notice.number, b"message")
            (again,) = await found.outbox.take(10, held=0)
            assert (again.number, again.body) == (notice.number, b"message")
            await found.outbox.done([again.number])
            assert await found.outbox.take(10, held=0) == []

    @scenario
    async def test_h_i1_a_start_that_nobody_opened_comes_to_the_relay(self, folder: Path) -> None:
        """Red if a start leaves no row in the outbox."""
        async with postgres(dsn_of(folder)) as found:
            await found.journal.accept(accepted("opened"))
            await found.journal.accept(accepted("forgotten"))
            await found.outbox.mark_done("opened", "start")
            assert await found.outbox.take(10) == []  # whoever accepted it may still be about to
            server().sql("UPDATE outbox SET until = 0", database_of(folder))
            assert [(each.execution, each.kind) for each in await found.outbox.take(10)] == [
                ("forgotten", "start")
            ]
