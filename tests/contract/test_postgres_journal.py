"""What only a journal with many writers can show: races, lost answers, rows that nobody can write."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg  # type: ignore[import-untyped]
import pytest

from rune.adapters.postgres.database import DatabaseRefusedError, query
from rune.adapters.postgres.journal import PostgresJournal
from rune.adapters.postgres.journal_writes import FactRun, PendingStart
from rune.adapters.postgres.journal_writes import _fact_arguments as run_arguments
from rune.adapters.postgres.journal_writes import _start_arguments as start_arguments
from rune.adapters.postgres.stores import PostgresStores, postgres
from rune.core.execution.fact import EffectStarted, ExecutionEnded, Fact, NodeResult, SignalReceived
from rune.ports.journal import ExecutionEndedError, StoreUnavailableError
from rune.ports.workflows import WorkflowNotFoundError
from tests.contract.suites.records import accepted, child, result
from tests.contract.suites.scenario import scenario
from tests.support.services.databases import dsn_of, patient, ready
from tests.support.services.postgres import database_of, server
from tests.support.services.proxy import Proxy

ROUNDS = 200


@pytest.fixture(autouse=True, scope="module")
def _running() -> None:
    ready()


@asynccontextmanager
async def processes(folder: Path, count: int = 2) -> AsyncIterator[list[PostgresJournal]]:
    """As many journals on one database as there would be processes."""
    async with AsyncExitStack() as stack:
        yield [(await stack.enter_async_context(postgres(dsn_of(folder)))).journal for _ in range(count)]


def through(
    proxy: Proxy, folder: Path, patience: float = 5.0, longest: float = 30.0
) -> AbstractAsyncContextManager[PostgresStores]:
    """The database by way of a wire that can be cut."""
    dsn = dsn_of(folder).replace(f":{server().port}/", f":{proxy.port}/")
    return patient(dsn, patience=patience, longest=longest)


@asynccontextmanager
async def slow(folder: Path) -> AsyncIterator[tuple[Any, Callable[[], Awaitable[None]]]]:
    """A process that takes its time between a statement and its commit."""
    connection = await asyncpg.connect(dsn_of(folder))
    transaction = connection.transaction()
    await transaction.start()
    try:
        yield connection, transaction.commit
    finally:
        await connection.close()


async def until_it_waits(folder: Path, asking: asyncio.Task[Any]) -> None:
    """Until somebody waits for a lock, or is done without."""
    connection = await asyncpg.connect(dsn_of(folder))
    while not asking.done() and not await connection.fetchval(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    ):
        pass
    await connection.close()


def deadlocks(folder: Path) -> int:
    return int(
        server().sql(f"SELECT deadlocks FROM pg_stat_database WHERE datname = '{database_of(folder)}'")
    )


class TestRaces:
    def test_two_writers_of_the_same_tokens_have_one_winner_each_and_never_wait_for_each_other(
        self, tmp_path: Path
    ) -> None:
        """Red if the locks of a group are taken in the order of its runs."""
        dice = random.Random(5)
        executions = [f"x{number}" for number in range(8)]

        async def writer(journal: PostgresJournal, wanted: Sequence[tuple[str, Fact]]) -> list[bool]:
            answers = await asyncio.gather(*(journal.record(each, [fact]) for each, fact in wanted))
            return [answer[0] is fact for answer, (_, fact) in zip(answers, wanted, strict=True)]

        async def rounds() -> None:
            async with processes(tmp_path) as journals:
                for each in executions:
                    await journals[0].accept(accepted(each))
                for number in range(ROUNDS):
                    tokens = [(each, node) for each in executions for node in (2 * number, 2 * number + 1)]
                    won: dict[tuple[str, int], int] = dict.fromkeys(tokens, 0)
                    orders = [dice.sample(tokens, len(tokens)) for _ in journals]
                    answers = await asyncio.gather(
                        *(
                            writer(journal, [(each, result(node)) for each, node in order])
                            for journal, order in zip(journals, orders, strict=True)
                        )
                    )
                    for order, answer in zip(orders, answers, strict=True):
                        for token, mine in zip(order, answer, strict=True):
                            won[token] += mine
                    assert set(won.values()) == {1}

        asyncio.run(rounds())
        assert deadlocks(tmp_path) == 0

    def test_who_follows_an_execution_by_its_numbers_misses_nothing(self, tmp_path: Path) -> None:
        """Within an execution a later number is a later commit: a small write never overtakes a large one that took its
        numbers before. Red if `fact_seq` has a cache, or if the lock is shared."""
        runs, width, singles = 20, 400, 400
        total = runs * width + singles

        async def follow(journal: PostgresJournal) -> int:
            seen = last = 0
            while seen < total:
                for row in await journal.facts("x", after=last):
                    seen += 1
                    last = row.number
            return seen

        async def write_runs(journal: PostgresJournal) -> None:
            for start in range(0, runs * width, width):
                await journal.record("x", [result(node) for node in range(start, start + width)])

        async def write_singles(journal: PostgresJournal) -> None:
            for node in range(singles):
                await journal.record("x", [result(runs * width + node)])

        async def go() -> None:
            async with processes(tmp_path, 3) as (one, two, looker), asyncio.timeout(60):
                await one.accept(accepted())
                seen, _, _ = await asyncio.gather(follow(looker), write_runs(one), write_singles(two))
                assert seen == total

        asyncio.run(go())

    @scenario
    async def test_late_is_exactly_what_lies_behind_the_end(self, folder: Path) -> None:
        async with processes(folder) as (one, two):
            for number in range(20):
                name = f"x{number}"
                await one.accept(accepted(name))
                late = await asyncio.gather(
                    *(one.record(name, [result(node)]) for node in range(5)),
                    two.record(name, [ExecutionEnded(9, "cancelled")]),
                    *(two.record(name, [result(node)]) for node in range(5, 10)),
                    return_exceptions=True,
                )
                rows = await one.facts(name)
                (place,) = [place for place, row in enumerate(rows) if isinstance(row.fact, ExecutionEnded)]
                assert [row.late for row in rows] == [at > place for at in range(len(rows))]
                assert len(rows) == 11
                refused = [isinstance(each, ExecutionEndedError) for each in late]
                told = [
                    node for node, each in zip([*range(5), -1, *range(5, 10)], refused, strict=True) if each
                ]
                kept = [row.fact.node for row in rows if isinstance(row.fact, NodeResult) and row.late]
                assert sorted(told) == sorted(kept)

    @scenario
    async def test_children_started_by_one_process_while_another_ends_the_parent(self, folder: Path) -> None:
        async with processes(folder) as (one, two):
            await one.accept(accepted("x"))
            names = [f"c{number}" for number in range(40)]
            answers = await asyncio.gather(
                *(one.accept(child(name)) for name in names[:20]),
                two.record("x", [ExecutionEnded(3, "completed")]),
                *(two.accept(child(name)) for name in names[20:]),
                return_exceptions=True,
            )
            del answers[20]
            begun = [
                name
                for name, each in zip(names, answers, strict=True)
                if not isinstance(each, ExecutionEndedError)
            ]
            assert sorted(await one.unreported_children(100)) == sorted(begun)

    @scenario
    async def test_a_key_or_an_id_that_two_processes_use_at_once_starts_one_execution(
        self, folder: Path
    ) -> None:
        """Red if keys are not locked."""
        async with processes(folder, 1) as (journal,):
            first = accepted("first", key="k")
            for other in (accepted("second", key="k"), accepted("first", labels={"a": "b"})):
                async with slow(folder) as (connection, commit):
                    await connection.fetch(
                        query("accept"), *start_arguments([PendingStart(first, (), defined=False)]), 0
                    )
                    asking = asyncio.create_task(journal.accept(other))
                    await until_it_waits(folder, asking)
                    await commit()
                    assert await asking == first
                server().sql("DELETE FROM execution; DELETE FROM client_key", database_of(folder))

    @scenario
    async def test_a_child_waits_for_what_becomes_of_its_parent(self, folder: Path) -> None:
        """Red if the parent is not locked."""
        async with processes(folder, 1) as (journal,), slow(folder) as (connection, commit):
            await journal.accept(accepted("x"))
            end = ExecutionEnded(3, "completed")
            await connection.fetch(query("record"), *run_arguments([FactRun("x", [end], 1)]))
            asking = asyncio.create_task(journal.accept(child("c")))
            await until_it_waits(folder, asking)
            await commit()
            with pytest.raises(ExecutionEndedError):
                await asking
            assert await journal.accepted("c") is None

    @scenario
    async def test_a_definition_is_there_for_every_start_that_names_it_whoever_collects(
        self, folder: Path
    ) -> None:
        """Red if a start does not look for its definition, or looks without a lock."""
        async with postgres(dsn_of(folder)) as one, postgres(dsn_of(folder)) as two:
            for number in range(40):
                hash = f"h{number}"
                await one.journal.save_definition(hash, b"{}")
                await asyncio.gather(
                    one.journal.accept(accepted(f"x{number}", hash=hash)), two.retention.collect([], 10)
                )
                assert await one.journal.definition(hash) == b"{}"


class TestRefusals:
    @scenario
    async def test_a_row_that_cannot_be_written_harms_nobody_beside_it(self, folder: Path) -> None:
        """Red if a group that fails is not taken apart."""
        async with processes(folder, 1) as (journal,):
            await journal.accept(accepted())
            wanted: list[Fact] = [result(node) for node in range(60)]
            too_long = [3, 17, 18, 59]
            for place in too_long:
                wanted[place] = SignalReceived(2, os.urandom(4_000).hex(), "go")
            answers = await asyncio.gather(
                *(journal.record("x", [each]) for each in wanted), return_exceptions=True
            )
            assert [
                at for at, each in enumerate(answers) if isinstance(each, DatabaseRefusedError)
            ] == too_long
            assert len(await journal.facts("x")) == 56

    @scenario
    async def test_what_the_database_cannot_spell_is_refused_alone(self, folder: Path) -> None:
        async with processes(folder, 1) as (journal,):
            await journal.accept(accepted())
            names = [f"y{number}" for number in range(20)]
            names[4], names[11] = "nul\0", "half \ud800"
            starts = await asyncio.gather(
                *(journal.accept(accepted("s" + name, key=name)) for name in names), return_exceptions=True
            )
            assert [at for at, each in enumerate(starts) if isinstance(each, Exception)] == [4, 11]
            weird = result(1, b'"\\u0000 \\ud800 \x00\xff"')
            assert (await journal.record("x", [weird]))[0] is weird
            assert [row.fact for row in await journal.facts("x")] == [weird]

    @scenario
    async def test_nothing_is_found_under_a_name_that_cannot_be_spelt(self, folder: Path) -> None:
        async with postgres(dsn_of(folder)) as found:
            for name in ("a\0b", "\ud800"):
                assert await found.journal.accepted(name) is None
                assert await found.journal.facts(name) == []
                assert await found.index.execution(name) is None
                assert await found.index.matching(name, 5) == []
                assert await found.blob.get(f"{name}/x") is None
                with pytest.raises(WorkflowNotFoundError):
                    await found.workflows.find(name)

    @scenario
    async def test_an_unknown_execution_harms_nobody_beside_it(self, folder: Path) -> None:
        async with processes(folder, 1) as (journal,):
            await journal.accept(accepted())
            answers = await asyncio.gather(
                journal.record("x", [result(1)]),
                journal.record("nobody", [result(1)]),
                journal.record("x", [result(2)]),
                return_exceptions=True,
            )
            assert isinstance(answers[1], KeyError)
            assert len(await journal.facts("x")) == 2


class TestLostAnswers:
    @scenario
    async def test_an_answer_that_never_came_is_found_out(self, folder: Path) -> None:
        """The rows are committed, the line goes dead before anybody is told: whoever wrote them is told that they are
        theirs. Red without the mark of a row."""
        async with Proxy(server().port).running() as proxy, through(proxy, folder) as found:
            journal = found.journal
            await journal.accept(accepted())
            for number in range(10):
                facts: list[Fact] = [EffectStarted(number, (), 2, 1), result(number), result(100 + number)]
                proxy.cut()
                answers = await asyncio.gather(
                    journal.record("x", facts[:1]),
                    journal.record("x", facts[1:]),
                    journal.accept(accepted("y")),
                )
                assert answers[0][0] is facts[0]
                assert list(answers[1]) == facts[1:]
                assert answers[1][0] is facts[1]
            assert proxy.cuts == 10
            assert len(await journal.facts("x")) == 30

    @scenario
    async def test_an_end_whose_answer_never_came_is_one_end(self, folder: Path) -> None:
        async with Proxy(server().port).running() as proxy, through(proxy, folder) as found:
            journal = found.journal
            await journal.accept(accepted())
            proxy.cut()
            end = ExecutionEnded(3, "completed")
            assert (await journal.record("x", [result(1), end]))[1] is end
            assert proxy.cuts == 1
            assert len(await journal.facts("x")) == 2
            server().sql("UPDATE outbox SET until = 0 WHERE kind = 'end'", database_of(folder))
            assert [each.kind for each in await found.outbox.take(10)] == ["end"]

    @scenario
    async def test_an_answer_of_somebody_else_is_not_taken_for_ones_own(self, folder: Path) -> None:
        """Equal to the last byte and yet another's."""
        async with (
            Proxy(server().port).running() as proxy,
            through(proxy, folder) as found,
            processes(folder, 1) as (other,),
        ):
            await other.accept(accepted())
            first, twin = EffectStarted(1, (), 2, 1), EffectStarted(1, (), 2, 1)
            await other.record("x", [first])
            await found.journal.results("x", [(1, ())])
            proxy.cut()
            (stored,) = await found.journal.record("x", [twin])
            assert proxy.cuts == 1
            assert (stored == twin, stored is twin) == (True, False)

    @scenario
    async def test_a_line_that_falls_silent_is_given_up_for_another(self, folder: Path) -> None:
        """Nobody hangs up, nothing comes: only the time tells."""
        async with (
            Proxy(server().port).running() as proxy,
            through(proxy, folder, patience=5.0, longest=0.5) as found,
        ):
            await found.journal.accept(accepted())
            await found.journal.record("x", [result(0)])
            proxy.stall()
            facts: list[Fact] = [EffectStarted(1, (), 2, 1), result(1)]
            answers = await asyncio.gather(*(found.journal.record("x", [fact]) for fact in facts))
            assert [answer[0] is fact for answer, fact in zip(answers, facts, strict=True)] == [True, True]
            assert proxy.silent > 0
            assert len(await found.journal.facts("x")) == 3

    @scenario
    async def test_who_was_told_that_the_store_is_away_and_asks_again_finds_their_own_row(
        self, folder: Path
    ) -> None:
        async with Proxy(server().port).running() as proxy, through(proxy, folder, patience=0.0) as found:
            journal = found.journal
            await journal.accept(accepted())
            mine = EffectStarted(1, (), 2, 1)
            proxy.cut()
            answer: Sequence[Fact] = []
            refusals = 0
            while not answer:
                try:
                    answer = await journal.record("x", [mine])
                except StoreUnavailableError:
                    refusals += 1
            assert refusals == 1
            assert answer[0] is mine
            assert len(await journal.facts("x")) == 1
