"""PostgreSQL journal with several writers: races, lost answers and rejected rows."""

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
from rune.ports.journal import ExecutionEndedError, StoreUnavailableError, UnknownExecutionError
from rune.ports.workflows import WorkflowNotFoundError
from tests.contract.suites.records import child_record, execution_record, result
from tests.support.async_test import async_test
from tests.support.services.databases import dsn_of, patient, ready
from tests.support.services.postgres import database_of, server
from tests.support.services.proxy import Proxy

ROUNDS = 200


@pytest.fixture(autouse=True, scope="module")
def _running() -> None:
    ready()


@asynccontextmanager
async def processes(folder: Path, count: int = 2) -> AsyncIterator[list[PostgresJournal]]:
    """Open several journals on one database, as several processes would."""
    async with AsyncExitStack() as stack:
        yield [(await stack.enter_async_context(postgres(dsn_of(folder)))).journal for _ in range(count)]


def stores_through(
    proxy: Proxy, folder: Path, patience: float = 5.0, longest: float = 30.0
) -> AbstractAsyncContextManager[PostgresStores]:
    """Open the stores through a proxy that can cut the connection."""
    dsn = dsn_of(folder).replace(f":{server().port}/", f":{proxy.port}/")
    return patient(dsn, patience=patience, longest=longest)


@asynccontextmanager
async def open_transaction(folder: Path) -> AsyncIterator[tuple[Any, Callable[[], Awaitable[None]]]]:
    """Open a transaction that the test commits later."""
    connection = await asyncpg.connect(dsn_of(folder))
    transaction = connection.transaction()
    await transaction.start()
    try:
        yield connection, transaction.commit
    finally:
        await connection.close()


async def until_blocked(folder: Path, pending: asyncio.Task[Any]) -> None:
    """Wait until a session waits for a lock or the task is done."""
    connection = await asyncpg.connect(dsn_of(folder))
    while not pending.done() and not await connection.fetchval(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    ):
        pass
    await connection.close()


def deadlocks(folder: Path) -> int:
    return int(
        server().sql(f"SELECT deadlocks FROM pg_stat_database WHERE datname = '{database_of(folder)}'")
    )


class TestRaces:
    def test_concurrent_writers_have_one_winner_and_no_deadlock(self, tmp_path: Path) -> None:
        """Fails if the locks of a batch are taken in the order of its runs."""
        dice = random.Random(5)
        executions = [f"x{number}" for number in range(8)]

        async def writer(journal: PostgresJournal, facts: Sequence[tuple[str, Fact]]) -> list[bool]:
            answers = await asyncio.gather(*(journal.record(each, [fact]) for each, fact in facts))
            return [answer[0] is fact for answer, (_, fact) in zip(answers, facts, strict=True)]

        async def rounds() -> None:
            async with processes(tmp_path) as journals:
                for each in executions:
                    await journals[0].accept(execution_record(each))
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

    def test_reader_following_numbers_misses_no_fact(self, tmp_path: Path) -> None:
        """Within an execution a later number is a later commit: a small write never overtakes a large one that took its
        numbers before. Fails if `fact_seq` has a cache, or if the lock is shared."""
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
            async with processes(tmp_path, 3) as (one, two, reader), asyncio.timeout(60):
                await one.accept(execution_record())
                seen, _, _ = await asyncio.gather(follow(reader), write_runs(one), write_singles(two))
                assert seen == total

        asyncio.run(go())

    @async_test
    async def test_facts_after_end_are_late(self, tmp_path: Path) -> None:
        async with processes(tmp_path) as (one, two):
            for number in range(20):
                name = f"x{number}"
                await one.accept(execution_record(name))
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
                rejected = [isinstance(each, ExecutionEndedError) for each in late]
                rejected_nodes = [
                    node for node, each in zip([*range(5), -1, *range(5, 10)], rejected, strict=True) if each
                ]
                late_nodes = [row.fact.node for row in rows if isinstance(row.fact, NodeResult) and row.late]
                assert sorted(rejected_nodes) == sorted(late_nodes)

    @async_test
    async def test_child_starts_racing_parent_end_are_unreported(self, tmp_path: Path) -> None:
        async with processes(tmp_path) as (one, two):
            await one.accept(execution_record("x"))
            names = [f"c{number}" for number in range(40)]
            answers = await asyncio.gather(
                *(one.accept(child_record(name)) for name in names[:20]),
                two.record("x", [ExecutionEnded(3, "completed")]),
                *(two.accept(child_record(name)) for name in names[20:]),
                return_exceptions=True,
            )
            del answers[20]
            begun = [
                name
                for name, each in zip(names, answers, strict=True)
                if not isinstance(each, ExecutionEndedError)
            ]
            assert sorted(await one.unreported_children(100)) == sorted(begun)

    @async_test
    async def test_same_key_or_id_in_two_processes_starts_one_execution(self, tmp_path: Path) -> None:
        """Fails if keys are not locked."""
        async with processes(tmp_path, 1) as (journal,):
            first = execution_record("first", key="k")
            for other in (execution_record("second", key="k"), execution_record("first", labels={"a": "b"})):
                async with open_transaction(tmp_path) as (connection, commit):
                    await connection.fetch(
                        query("accept"), *start_arguments([PendingStart(first, (), defined=False)]), 0
                    )
                    pending = asyncio.create_task(journal.accept(other))
                    await until_blocked(tmp_path, pending)
                    await commit()
                    assert await pending == first
                server().sql("DELETE FROM execution; DELETE FROM client_key", database_of(tmp_path))

    @async_test
    async def test_child_start_waits_for_uncommitted_parent_end(self, tmp_path: Path) -> None:
        """Fails if the parent is not locked."""
        async with processes(tmp_path, 1) as (journal,), open_transaction(tmp_path) as (connection, commit):
            await journal.accept(execution_record("x"))
            end = ExecutionEnded(3, "completed")
            await connection.fetch(query("record"), *run_arguments([FactRun("x", [end], 1)]))
            pending = asyncio.create_task(journal.accept(child_record("c")))
            await until_blocked(tmp_path, pending)
            await commit()
            with pytest.raises(ExecutionEndedError):
                await pending
            assert await journal.accepted("c") is None

    @async_test
    async def test_definition_of_start_survives_concurrent_collect(self, tmp_path: Path) -> None:
        """Fails if a start does not look for its definition, or looks without a lock."""
        async with postgres(dsn_of(tmp_path)) as one, postgres(dsn_of(tmp_path)) as two:
            for number in range(40):
                hash = f"h{number}"
                await one.journal.save_definition(hash, b"{}")
                await asyncio.gather(
                    one.journal.accept(execution_record(f"x{number}", hash=hash)),
                    two.retention.collect([], 10),
                )
                assert await one.journal.definition(hash) == b"{}"


class TestRefusals:
    @async_test
    async def test_rejected_fact_does_not_affect_its_batch(self, tmp_path: Path) -> None:
        """Fails if a failed batch is not split."""
        async with processes(tmp_path, 1) as (journal,):
            await journal.accept(execution_record())
            facts: list[Fact] = [result(node) for node in range(60)]
            too_long = [3, 17, 18, 59]
            for place in too_long:
                facts[place] = SignalReceived(2, os.urandom(4_000).hex(), "go")
            answers = await asyncio.gather(
                *(journal.record("x", [each]) for each in facts), return_exceptions=True
            )
            assert [
                at for at, each in enumerate(answers) if isinstance(each, DatabaseRefusedError)
            ] == too_long
            assert len(await journal.facts("x")) == 56

    @async_test
    async def test_unencodable_start_is_rejected_alone(self, tmp_path: Path) -> None:
        async with processes(tmp_path, 1) as (journal,):
            await journal.accept(execution_record())
            names = [f"y{number}" for number in range(20)]
            names[4], names[11] = "nul\0", "half \ud800"
            starts = await asyncio.gather(
                *(journal.accept(execution_record("s" + name, key=name)) for name in names),
                return_exceptions=True,
            )
            assert [at for at, each in enumerate(starts) if isinstance(each, Exception)] == [4, 11]
            weird = result(1, b'"\\u0000 \\ud800 \x00\xff"')
            assert (await journal.record("x", [weird]))[0] is weird
            assert [row.fact for row in await journal.facts("x")] == [weird]

    @async_test
    async def test_lookup_of_unencodable_name_finds_nothing(self, tmp_path: Path) -> None:
        async with postgres(dsn_of(tmp_path)) as found:
            for name in ("a\0b", "\ud800"):
                assert await found.journal.accepted(name) is None
                assert await found.journal.facts(name) == []
                assert await found.index.execution(name) is None
                assert await found.index.matching(name, 5) == []
                assert await found.blob.get(f"{name}/x") is None
                with pytest.raises(WorkflowNotFoundError):
                    await found.workflows.find(name)

    @async_test
    async def test_unknown_execution_does_not_affect_its_batch(self, tmp_path: Path) -> None:
        async with processes(tmp_path, 1) as (journal,):
            await journal.accept(execution_record())
            answers = await asyncio.gather(
                journal.record("x", [result(1)]),
                journal.record("unknown", [result(1)]),
                journal.record("x", [result(2)]),
                return_exceptions=True,
            )
            assert isinstance(answers[1], UnknownExecutionError)
            assert len(await journal.facts("x")) == 2


class TestLostAnswers:
    @async_test
    async def test_record_after_lost_answer_returns_own_facts(self, tmp_path: Path) -> None:
        """The rows are committed, but the connection breaks before the answer: the writer still gets its own facts
        back. Fails without the writer's mark in the row."""
        async with Proxy(server().port).running() as proxy, stores_through(proxy, tmp_path) as found:
            journal = found.journal
            await journal.accept(execution_record())
            for number in range(10):
                facts: list[Fact] = [EffectStarted(number, (), 2, 1), result(number), result(100 + number)]
                proxy.cut()
                answers = await asyncio.gather(
                    journal.record("x", facts[:1]),
                    journal.record("x", facts[1:]),
                    journal.accept(execution_record("y")),
                )
                assert answers[0][0] is facts[0]
                assert list(answers[1]) == facts[1:]
                assert answers[1][0] is facts[1]
            assert proxy.cuts == 10
            assert len(await journal.facts("x")) == 30

    @async_test
    async def test_end_after_lost_answer_is_recorded_once(self, tmp_path: Path) -> None:
        async with Proxy(server().port).running() as proxy, stores_through(proxy, tmp_path) as found:
            journal = found.journal
            await journal.accept(execution_record())
            proxy.cut()
            end = ExecutionEnded(3, "completed")
            facts: list[Fact] = [result(1), end]
            assert (await journal.record("x", facts))[1] is end
            assert proxy.cuts == 1
            assert len(await journal.facts("x")) == 2
            server().sql("UPDATE outbox SET until = 0 WHERE kind = 'end'", database_of(tmp_path))
            assert [each.kind for each in await found.outbox.take(10)] == ["end"]

    @async_test
    async def test_equal_fact_of_other_writer_is_not_own_after_lost_answer(self, tmp_path: Path) -> None:
        """The stored fact is equal byte by byte but was recorded by another writer."""
        async with (
            Proxy(server().port).running() as proxy,
            stores_through(proxy, tmp_path) as found,
            processes(tmp_path, 1) as (other,),
        ):
            await other.accept(execution_record())
            first, twin = EffectStarted(1, (), 2, 1), EffectStarted(1, (), 2, 1)
            await other.record("x", [first])
            await found.journal.results("x", [(1, ())])
            proxy.cut()
            (stored,) = await found.journal.record("x", [twin])
            assert proxy.cuts == 1
            assert (stored == twin, stored is twin) == (True, False)

    @async_test
    async def test_silent_connection_is_replaced(self, tmp_path: Path) -> None:
        """The connection stays open without data; only the timeout detects it."""
        async with (
            Proxy(server().port).running() as proxy,
            stores_through(proxy, tmp_path, patience=5.0, longest=0.5) as found,
        ):
            await found.journal.accept(execution_record())
            await found.journal.record("x", [result(0)])
            proxy.stall()
            facts: list[Fact] = [EffectStarted(1, (), 2, 1), result(1)]
            answers = await asyncio.gather(*(found.journal.record("x", [fact]) for fact in facts))
            assert [answer[0] is fact for answer, fact in zip(answers, facts, strict=True)] == [True, True]
            assert proxy.silent > 0
            assert len(await found.journal.facts("x")) == 3

    @async_test
    async def test_retry_after_store_unavailable_returns_own_fact(self, tmp_path: Path) -> None:
        async with (
            Proxy(server().port).running() as proxy,
            stores_through(proxy, tmp_path, patience=0.0) as found,
        ):
            journal = found.journal
            await journal.accept(execution_record())
            mine = EffectStarted(1, (), 2, 1)
            proxy.cut()
            answer: Sequence[Fact] = []
            errors = 0
            while not answer:
                try:
                    answer = await journal.record("x", [mine])
                except StoreUnavailableError:
                    errors += 1
            assert errors == 1
            assert answer[0] is mine
            assert len(await journal.facts("x")) == 1


class TestSnapshot:
    @async_test
    async def test_every_read_may_be_gathered(self, tmp_path: Path) -> None:
        """A snapshot is one connection: reads that a task starts together take turns on it."""
        async with postgres(dsn_of(tmp_path)) as found:
            definition = b"{}"
            await found.journal.save_definition("h", definition)
            await found.journal.accept(execution_record("x"))
            await found.journal.record("x", [result(node) for node in range(8)])
            for number in range(8):
                await found.blob.put(f"x/{number}", b"%d" % number)

            async with found.database.snapshot(), found.database.snapshot():
                reads: list[Any] = await asyncio.gather(
                    *(found.blob.get(f"x/{number}") for number in range(8)),
                    *(found.journal.facts("x") for _ in range(8)),
                    *(found.journal.results("x", [(number, ())]) for number in range(8)),
                    *(found.database.fetch_planned("SELECT 1") for _ in range(8)),
                )

        assert reads[:8] == [b"%d" % number for number in range(8)]
        assert [len(each) for each in reads[8:]] == [8] * 8 + [1] * 16
