"""Both stores hold limits, PostgreSQL among several processes too."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from rune.adapters.postgres.access import PostgresStartLimits
from rune.adapters.postgres.stores import postgres
from rune.adapters.sqlite.access import SqliteStartLimits
from rune.ports.access import Bucket, InvalidLimitsError, Limits, check_limits
from rune.runtime.clock import SystemClock
from rune.testing.clock import VirtualClock
from tests.contract.suites.limiting import LimitContract, Limited
from tests.contract.suites.scenario import scenario
from tests.contract.test_embedded import opened
from tests.support.services.databases import dsn_of, ready
from tests.support.services.postgres import database_of, server

RACER = """
import asyncio, sys
from rune.adapters.postgres.stores import postgres
from rune.ports.access import AppliedLimits, StartLimitError
from tests.contract.suites.records import accepted

async def race(dsn, name):
    async with postgres(dsn) as found:
        print("ready", flush=True)
        sys.stdin.readline()
        held = AppliedLimits(("key:k1", "workflow:orders"))
        wanted = [accepted(f"{name}-{n}", workflow="orders") for n in range(40)]
        starts = (found.journal.accept(each, held=held) for each in wanted)
        answers = await asyncio.gather(*starts, return_exceptions=True)
        assert all(each in wanted or isinstance(each, StartLimitError) for each in answers), answers
        print(sum(each in wanted for each in answers), flush=True)

asyncio.run(race(*sys.argv[1:]))
"""


@pytest.fixture(autouse=True, scope="module")
def _running() -> None:
    ready()


class TestEmbedded(LimitContract):
    @asynccontextmanager
    async def make_limited(self, folder: Path) -> AsyncIterator[Limited]:
        clock = VirtualClock()
        gone = 0

        def later(ms: int) -> None:
            nonlocal gone
            gone += ms

        async with opened(folder, clock) as embedded:
            limits = SqliteStartLimits(embedded.database)
            yield Limited(embedded.journal, limits, lambda: clock.now() + gone, later)


class TestPostgres(LimitContract):
    @asynccontextmanager
    async def make_limited(self, folder: Path) -> AsyncIterator[Limited]:
        def later(ms: int) -> None:
            """The database counts by its own clock: what was filled is made older."""
            server().sql(f"UPDATE start_limit SET filled_at = filled_at - {ms}", database_of(folder))

        async with postgres(dsn_of(folder)) as found:
            yield Limited(found.journal, PostgresStartLimits(found.database), SystemClock().now, later)

    @scenario
    async def test_racing_processes_leave_exactly_so_many_running(self, folder: Path) -> None:
        await self._race(folder, Limits(running=13))

    @scenario
    async def test_racing_processes_share_one_rate(self, folder: Path) -> None:
        await self._race(folder, Limits(rate="1/h", burst=13))

    async def _race(self, folder: Path, limits: Limits) -> None:
        async with self.make_limited(folder) as found:
            await found.limits.put("workflow:orders", limits, 1)
            await found.limits.put("key:k1", Limits(running=1_000), 1)
            pipe = asyncio.subprocess.PIPE
            racers = [
                await asyncio.create_subprocess_exec(
                    sys.executable, "-c", RACER, dsn_of(folder), f"p{number}", stdin=pipe, stdout=pipe
                )
                for number in range(3)
            ]
            for each in racers:
                assert each.stdout is not None
                assert await each.stdout.readline() == b"ready\n"
            told = await asyncio.gather(*(each.communicate(b"\n") for each in racers))
            assert sum(int(out) for out, _ in told) == 13


def test_a_bucket_is_exact() -> None:
    third = Bucket(3, 1_000, 1)
    assert third.pause(0) == 334
    assert third.pause(third.level(0, 333)) == 1
    assert third.pause(third.level(0, 334)) == 0
    assert third.level(0, 10**9) == third.full
    assert third.level(5, -(10**9)) == 5


@pytest.mark.parametrize(
    "limits",
    [
        Limits(rate="0/s"),
        Limits(rate="10"),
        Limits(rate="10/d"),
        Limits(rate="9999999/s"),
        Limits(burst=2),
        Limits(rate="1/s", burst=0),
        Limits(running=0),
        Limits(waiting=-1),
    ],
    ids=str,
)
def test_limits_that_mean_nothing_are_refused(limits: Limits) -> None:
    with pytest.raises(InvalidLimitsError):
        check_limits(limits)
