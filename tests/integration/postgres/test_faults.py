"""PostgreSQL is killed, restarted or unavailable: acknowledged facts are durable and the rest is retried."""

from __future__ import annotations

import asyncio
from pathlib import Path

import asyncpg  # type: ignore[import-untyped]
import pytest

from rune.adapters.postgres.database import Database, map_error
from rune.adapters.postgres.journal import PostgresJournal
from rune.adapters.postgres.journal_writes import MAX_RUNS
from rune.adapters.postgres.schema import migrate
from rune.adapters.postgres.stores import postgres
from rune.core.execution.fact import ExecutionEnded, Fact
from rune.ports.journal import StoreUnavailableError
from tests.contract.suites.records import execution_record, result
from tests.support.async_test import async_test
from tests.support.services.databases import dsn_of, patient, ready
from tests.support.services.listening import refusing_port
from tests.support.services.postgres import database_of, new_server, server

pytestmark = pytest.mark.long

WRITERS = 40
FACTS_PER_WRITER = 60
KILLS = 4


@pytest.fixture(autouse=True, scope="module")
def _running() -> None:
    ready()


class Load:
    """Writers that retry through outages, and the answers they got."""

    def __init__(self) -> None:
        self.acknowledged: list[tuple[str, Fact]] = []
        self.foreign: list[Fact] = []
        self.outages = 0
        self.stopped = False
        self._marks: dict[int, asyncio.Event] = {}

    async def write(self, journal: PostgresJournal, number: int) -> None:
        execution = f"x{number % 10}"
        for node in range(FACTS_PER_WRITER):
            fact: Fact = result(number * FACTS_PER_WRITER + node)
            while True:
                try:
                    (answer,) = await journal.record(execution, [fact])
                    break
                except StoreUnavailableError:
                    if self.stopped:
                        return
                    self.outages += 1
            if answer is not fact:
                self.foreign.append(fact)
            self.acknowledged.append((execution, fact))
            for count, mark in self._marks.items():
                if len(self.acknowledged) >= count:
                    mark.set()

    def reached(self, count: int) -> asyncio.Event:
        return self._marks.setdefault(count, asyncio.Event())


@pytest.mark.parametrize("patience", [0.0, 5.0])
def test_acknowledged_facts_survive_server_kill(patience: float) -> None:
    """kill -9 of the whole server under load. A writer without an answer retries and gets its own fact back if it was
    committed. Fails with `synchronous_commit = off`."""
    own = new_server()
    own.create("faults")
    asyncio.run(migrate(own.dsn("faults")))
    load = Load()

    async def go() -> None:
        async with patient(own.dsn("faults"), patience=patience) as found, asyncio.timeout(120):
            for number in range(10):
                await found.journal.accept(execution_record(f"x{number}"))
            marks = [
                load.reached(WRITERS * FACTS_PER_WRITER * (kill + 1) // (KILLS + 1)) for kill in range(KILLS)
            ]
            writing = [asyncio.create_task(load.write(found.journal, number)) for number in range(WRITERS)]
            try:
                for mark in marks:
                    await mark.wait()
                    own.kill()
                    before = list(load.acknowledged)
                    await asyncio.to_thread(own.start)
                    await check_stored(before)
            except BaseException:
                load.stopped = True
                raise
            await asyncio.gather(*writing)
            await check_stored(load.acknowledged)
        async with postgres(own.dsn("faults")) as reader:
            stored = [len(await reader.journal.facts(f"x{number}")) for number in range(10)]
        assert sum(stored) == WRITERS * FACTS_PER_WRITER

    async def check_stored(expected: list[tuple[str, Fact]]) -> None:
        async with postgres(own.dsn("faults")) as reader:
            for number in range(10):
                wanted = [fact for execution, fact in expected if execution == f"x{number}"]
                stored_facts = [row.fact for row in await reader.journal.facts(f"x{number}")]
                assert [fact for fact in wanted if fact not in stored_facts] == []

    asyncio.run(go())
    own.stop()
    assert load.foreign == []
    if patience == 0.0:
        assert load.outages > 0


def test_batches_are_split_when_server_is_out_of_locks() -> None:
    """Fails if a batch is rejected as a whole."""
    own = new_server(max_locks_per_transaction="10", max_connections="10", max_prepared_transactions="0")
    own.create("faults")
    asyncio.run(migrate(own.dsn("faults")))
    names = [f"x{number}" for number in range(4 * MAX_RUNS)]

    async def go() -> None:
        async with patient(own.dsn("faults"), patience=0.0) as found:
            await asyncio.gather(*(found.journal.accept(execution_record(name)) for name in names))
            locks = await asyncpg.connect(own.dsn("faults"))
            with pytest.raises(asyncpg.OutOfMemoryError):  # takes nearly all locks
                await locks.execute("SELECT pg_advisory_lock(n) FROM generate_series(1, 100000) AS n")
            await locks.execute("SELECT pg_advisory_unlock(n) FROM generate_series(1, 100) AS n")
            facts = [result(1) for _ in names]
            answers = await asyncio.gather(
                *(found.journal.record(name, [fact]) for name, fact in zip(names, facts, strict=True))
            )
            await locks.close()
            assert all(answer[0] is fact for answer, fact in zip(answers, facts, strict=True))

    asyncio.run(go())
    own.stop()
    assert (own.folder / "log").read_text().count("out of shared memory") > 1


class TestUnavailable:
    @async_test
    async def test_missing_server_is_unavailable(self, tmp_path: Path) -> None:
        with refusing_port() as port, pytest.raises(StoreUnavailableError):
            await Database(f"postgresql://rune@127.0.0.1:{port}/none", retry_timeout=0.0).open()

    @async_test
    async def test_unknown_database_or_user_is_unavailable(self, tmp_path: Path) -> None:
        for dsn in (server().dsn("nowhere"), server().dsn().replace("rune@", "unknown@")):
            with pytest.raises(StoreUnavailableError):
                await Database(dsn, retry_timeout=0.0).open()

    @async_test
    async def test_connection_error_hides_password(self, tmp_path: Path) -> None:
        with refusing_port() as port:
            for hosts in (f"127.0.0.1:{port}", f"127.0.0.1:{port},127.0.0.1:{port}"):
                dsn = f"postgresql://rune:hush@{hosts}/none?password=hush"
                for attempt in (Database(dsn, retry_timeout=0.0).open(), migrate(dsn)):
                    with pytest.raises(StoreUnavailableError) as raised:
                        await attempt
                    assert hosts in raised.value.message
                    assert "hush" not in raised.value.message

    @async_test
    async def test_terminated_connections_are_replaced(self, tmp_path: Path) -> None:
        async with postgres(dsn_of(tmp_path)) as found:
            await found.journal.accept(execution_record())
            for node in range(5):
                await asyncio.gather(*(found.journal.accepted("x") for _ in range(8)))
                server().sql(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    f" WHERE datname = '{database_of(tmp_path)}' AND application_name = 'rune'"
                )
                fact = result(node)
                assert (await found.journal.record("x", [fact]))[0] is fact
                assert await found.journal.accepted("x") == execution_record()
                assert await found.blob.get("x/none") is None
                assert not await found.journal.resolve_dead_letter("unknown", "dropped")

    @async_test
    async def test_read_only_server_is_unavailable_until_writable(self, tmp_path: Path) -> None:
        """The error of a demoted server after a failover."""
        name = database_of(tmp_path)
        dsn = dsn_of(tmp_path)
        database = Database(dsn, retry_timeout=0.0)
        await database.open()
        journal = PostgresJournal(database)
        await journal.accept(execution_record())
        server().sql(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')
        server().sql(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'")
        mine = result(1)
        for _ in range(3):
            with pytest.raises(StoreUnavailableError):
                await journal.record("x", [mine])
        server().sql(f'ALTER DATABASE "{name}" SET default_transaction_read_only = off')
        assert (await journal.record("x", [mine]))[0] is mine
        await journal.close()

    @async_test
    async def test_synchronous_commit_is_enforced(self, tmp_path: Path) -> None:
        dsn = dsn_of(tmp_path)
        for given, expected in (("off", "on"), ("remote_apply", "remote_apply")):
            server().sql(f'ALTER DATABASE "{database_of(tmp_path)}" SET synchronous_commit = {given}')
            async with postgres(dsn) as found:
                (row,) = await found.database.fetch("SELECT current_setting('synchronous_commit')")
                assert row[0] == expected

    @async_test
    async def test_closed_store_is_unavailable(self, tmp_path: Path) -> None:
        async with postgres(dsn_of(tmp_path)) as found:
            pass
        for attempt in (found.journal.record("x", [result(1)]), found.journal.accept(execution_record())):
            with pytest.raises(StoreUnavailableError):
                await attempt

    @async_test
    async def test_close_writes_pending_facts(self, tmp_path: Path) -> None:
        async with postgres(dsn_of(tmp_path)) as found:
            await found.journal.accept(execution_record())
            pending = [asyncio.create_task(found.journal.record("x", [result(node)])) for node in range(600)]
            last: list[Fact] = [result(1000), ExecutionEnded(3, "completed")]
            ending = asyncio.create_task(found.journal.record("x", last))
            await asyncio.gather(found.journal.accepted("x"))
        await asyncio.gather(*pending, ending, return_exceptions=True)
        async with postgres(dsn_of(tmp_path)) as found:
            assert len(await found.journal.facts("x")) == 602


@pytest.mark.parametrize(
    "error",
    [
        asyncpg.InterfaceError("cannot call Transaction.__aexit__(): the underlying connection is closed"),
        asyncpg.InternalClientError("got result for unknown protocol state 3"),
    ],
)
def test_error_of_the_driver_tells_no_internals(error: Exception) -> None:
    found = map_error(error, "PostgreSQL at db:5432")
    assert isinstance(found, StoreUnavailableError)
    assert found.message == "PostgreSQL at db:5432: the connection was lost"
