"""The server dies, restarts, is away: what was acknowledged is there, the rest is done again, nobody is told a lie."""

from __future__ import annotations

import asyncio
from pathlib import Path

import asyncpg  # type: ignore[import-untyped]
import pytest

from rune.adapters.postgres.database import Database
from rune.adapters.postgres.journal import PostgresJournal
from rune.adapters.postgres.journal_writes import MAX_RUNS
from rune.adapters.postgres.migrations import migrate
from rune.adapters.postgres.stores import postgres
from rune.core.execution.fact import ExecutionEnded, Fact
from rune.ports.journal import StoreUnavailableError
from tests.contract.suites.records import accepted, result
from tests.contract.suites.scenario import scenario
from tests.support.services.databases import dsn_of, patient, ready
from tests.support.services.postgres import database_of, free_port, new_server, server

WRITERS = 40
EACH = 60
KILLS = 4


@pytest.fixture(autouse=True, scope="module")
def _running() -> None:
    ready()


class Load:
    """Writers that go on whatever happens, and what they were told."""

    def __init__(self) -> None:
        self.acknowledged: list[tuple[str, Fact]] = []
        self.foreign: list[Fact] = []
        self.outages = 0
        self.over = False
        self._marks: dict[int, asyncio.Event] = {}

    async def write(self, journal: PostgresJournal, number: int) -> None:
        execution = f"x{number % 10}"
        for node in range(EACH):
            fact: Fact = result(number * EACH + node)
            while True:
                try:
                    (answer,) = await journal.record(execution, [fact])
                    break
                except StoreUnavailableError:
                    if self.over:
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
def test_killed_in_the_middle_of_groups_it_has_everything_that_was_acknowledged(patience: float) -> None:
    """kill -9 of the whole server under load. Who was not answered asks again, and is told that the row is their own
    if it was written after all. Red with `synchronous_commit = off`."""
    own = new_server()
    own.create("faults")
    asyncio.run(migrate(own.dsn("faults")))
    load = Load()

    async def go() -> None:
        async with patient(own.dsn("faults"), patience=patience) as found, asyncio.timeout(120):
            for number in range(10):
                await found.journal.accept(accepted(f"x{number}"))
            marks = [load.reached(WRITERS * EACH * (kill + 1) // (KILLS + 1)) for kill in range(KILLS)]
            writing = [asyncio.create_task(load.write(found.journal, number)) for number in range(WRITERS)]
            try:
                for mark in marks:
                    await mark.wait()
                    own.kill()
                    before = list(load.acknowledged)
                    await asyncio.to_thread(own.start)
                    await has(before)
            except BaseException:
                load.over = True
                raise
            await asyncio.gather(*writing)
            await has(load.acknowledged)
        async with postgres(own.dsn("faults")) as looker:
            stored = [len(await looker.journal.facts(f"x{number}")) for number in range(10)]
        assert sum(stored) == WRITERS * EACH

    async def has(expected: list[tuple[str, Fact]]) -> None:
        async with postgres(own.dsn("faults")) as looker:
            for number in range(10):
                wanted = [fact for execution, fact in expected if execution == f"x{number}"]
                kept = [row.fact for row in await looker.journal.facts(f"x{number}")]
                assert [fact for fact in wanted if fact not in kept] == []

    asyncio.run(go())
    own.stop()
    assert load.foreign == []
    if patience == 0.0:
        assert load.outages > 0


def test_a_server_with_room_for_few_locks_takes_groups_in_pieces() -> None:
    """Red if a group is given up as a whole."""
    own = new_server(max_locks_per_transaction="10", max_connections="10", max_prepared_transactions="0")
    own.create("faults")
    asyncio.run(migrate(own.dsn("faults")))
    names = [f"x{number}" for number in range(4 * MAX_RUNS)]

    async def go() -> None:
        async with patient(own.dsn("faults"), patience=0.0) as found:
            await asyncio.gather(*(found.journal.accept(accepted(name)) for name in names))
            hold = await asyncpg.connect(own.dsn("faults"))
            with pytest.raises(asyncpg.OutOfMemoryError):  # others have nearly all of them
                await hold.execute("SELECT pg_advisory_lock(n) FROM generate_series(1, 100000) AS n")
            await hold.execute("SELECT pg_advisory_unlock(n) FROM generate_series(1, 100) AS n")
            facts = [result(1) for _ in names]
            answers = await asyncio.gather(
                *(found.journal.record(name, [fact]) for name, fact in zip(names, facts, strict=True))
            )
            await hold.close()
            assert all(answer[0] is fact for answer, fact in zip(answers, facts, strict=True))

    asyncio.run(go())
    own.stop()
    assert (own.folder / "log").read_text().count("out of shared memory") > 1


class TestAway:
    @scenario
    async def test_a_server_that_is_not_there_is_away(self, folder: Path) -> None:
        database = Database(f"postgresql://rune@127.0.0.1:{free_port()}/none", retry_timeout=0.0)
        with pytest.raises(StoreUnavailableError):
            await database.open()

    @scenario
    async def test_a_server_that_does_not_know_us_is_away(self, folder: Path) -> None:
        for dsn in (server().dsn("nowhere"), server().dsn().replace("rune@", "nobody@")):
            with pytest.raises(StoreUnavailableError):
                await Database(dsn, retry_timeout=0.0).open()

    @scenario
    async def test_a_refusal_shows_no_password(self, folder: Path) -> None:
        port = free_port()
        for hosts in (f"127.0.0.1:{port}", f"127.0.0.1:{port},127.0.0.1:{port}"):
            dsn = f"postgresql://rune:hush@{hosts}/none?password=hush"
            for attempt in (Database(dsn, retry_timeout=0.0).open(), migrate(dsn)):
                with pytest.raises(StoreUnavailableError) as refused:
                    await attempt
                assert hosts in refused.value.message
                assert "hush" not in refused.value.message

    @scenario
    async def test_connections_that_were_ended_are_replaced_unnoticed(self, folder: Path) -> None:
        async with postgres(dsn_of(folder)) as found:
            await found.journal.accept(accepted())
            for node in range(5):
                await asyncio.gather(*(found.journal.accepted("x") for _ in range(8)))
                server().sql(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    f" WHERE datname = '{database_of(folder)}' AND application_name = 'rune'"
                )
                fact = result(node)
                assert (await found.journal.record("x", [fact]))[0] is fact
                assert await found.journal.accepted("x") == accepted()
                assert await found.blob.get("x/none") is None
                assert not await found.journal.resolve_dead_letter("nobody", "dropped")

    @scenario
    async def test_a_server_that_turns_read_only_is_away_and_then_is_not(self, folder: Path) -> None:
        """What a demoted server says after a fail-over."""
        name = database_of(folder)
        dsn = dsn_of(folder)
        database = Database(dsn, retry_timeout=0.0)
        await database.open()
        journal = PostgresJournal(database)
        await journal.accept(accepted())
        server().sql(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')
        server().sql(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'")
        mine = result(1)
        for _ in range(3):
            with pytest.raises(StoreUnavailableError):
                await journal.record("x", [mine])
        server().sql(f'ALTER DATABASE "{name}" SET default_transaction_read_only = off')
        assert (await journal.record("x", [mine]))[0] is mine
        await journal.close()

    @scenario
    async def test_what_is_acknowledged_is_on_disk_whatever_the_server_is_set_to(self, folder: Path) -> None:
        dsn = dsn_of(folder)
        for given, expected in (("off", "on"), ("remote_apply", "remote_apply")):
            server().sql(f'ALTER DATABASE "{database_of(folder)}" SET synchronous_commit = {given}')
            async with postgres(dsn) as found:
                (row,) = await found.database.fetch("SELECT current_setting('synchronous_commit')")
                assert row[0] == expected

    @scenario
    async def test_what_was_closed_is_away(self, folder: Path) -> None:
        async with postgres(dsn_of(folder)) as found:
            pass
        for attempt in (found.journal.record("x", [result(1)]), found.journal.accept(accepted())):
            with pytest.raises(StoreUnavailableError):
                await attempt

    @scenario
    async def test_closing_writes_what_is_under_way(self, folder: Path) -> None:
        async with postgres(dsn_of(folder)) as found:
            await found.journal.accept(accepted())
            under_way = [
                asyncio.create_task(found.journal.record("x", [result(node)])) for node in range(600)
            ]
            ending = asyncio.create_task(
                found.journal.record("x", [result(1000), ExecutionEnded(3, "completed")])
            )
            await asyncio.gather(found.journal.accepted("x"))
        await asyncio.gather(*under_way, ending, return_exceptions=True)
        async with postgres(dsn_of(folder)) as found:
            assert len(await found.journal.facts("x")) == 602
