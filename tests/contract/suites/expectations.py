"""Contract of expectations: optimistic changes that record what is missing, and the lookup of the last completion."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, NamedTuple

from msgspec.structs import replace

from rune.core.execution.fact import ExecutionEnded
from rune.core.execution.outcome import Error
from rune.core.schedules import Schedule, ScheduleState
from rune.ports.journal import HookStore, Journal, Missing
from rune.ports.retention import Retention, Rule
from rune.ports.workflows import Expectation, ExpectationStore, Trigger, TriggerStore, moved_on, trigger_id
from tests.contract.suites.records import execution_record
from tests.support.async_test import async_test

CONCURRENT = 20
MANY = 130
"""More executions than a store reads at once."""

FAILURE = Error("E", "over")


class ExpectationStores(NamedTuple):
    """The stores under test, with shortcuts."""

    expectations: ExpectationStore
    triggers: TriggerStore
    journal: Journal
    hooks: HookStore
    retention: Retention

    async def run(self, execution: str, at: int, status: Any = "completed", **given: Any) -> None:
        """Start an execution of a deployed version, and end it."""
        await self.journal.accept(execution_record(execution, **{"version": 1, **given}))
        error = None if status == "completed" else FAILURE
        await self.journal.record(execution, [ExecutionEnded(at, status, error)])

    async def put(self, expectation: Expectation) -> Expectation:
        """Store the expectation and return it with its new revision."""
        found = await self.expectations.put(expectation)
        assert found is not None
        return found


def expectation(workflow: str = "w", since: int = 100, every: int = 50) -> Expectation:
    """Return an expectation that is not stored yet."""
    return Expectation(
        workflow=workflow,
        version=2,
        hash="h",
        every=every,
        since=since,
        due=since + every,
        scopes=("w*",),
    )


def missing(at: int = 150, node: str | None = None) -> Missing:
    return Missing(
        name=f"w@{at}",
        workflow="w",
        version=2,
        hash="h",
        at=at,
        code="MISSING",
        message="none completed",
        node=node,
        scopes=("w*",),
    )


class ExpectationContract:
    """Subclasses open the stores in a folder; opened again there, they have the same content."""

    def make_stores(self, folder: Path) -> AbstractAsyncContextManager[ExpectationStores]:
        raise NotImplementedError

    def make_crash_copy(self, folder: Path) -> Path:
        """Copy what a crash at this moment would leave on disk to a new folder; the stores stay open."""
        raise NotImplementedError

    @async_test
    async def test_what_is_missing_is_recorded_with_the_next_period(self, tmp_path: Path) -> None:
        async with self.make_stores(tmp_path) as stores:
            first = await stores.put(expectation())
            assert await stores.expectations.put(moved_on(first, 150), missing()) is not None
            assert await stores.expectations.put(moved_on(first, 150), missing(200)) is None
            crash_copy = self.make_crash_copy(tmp_path)
        async with self.make_stores(crash_copy) as stores:
            assert await stores.expectations.find("w") == moved_on(replace(first, revision=2), 150)
            (row,) = await stores.hooks.take(10)
            assert (row.execution, row.kind, row.at, row.missing) == ("w@150", "missing", 150, missing())
            await stores.hooks.fail(row.number, "is not deployed")
            (failed,) = await stores.hooks.failed(10)
            assert (failed.execution, failed.kind, failed.workflow) == ("w@150", "missing", "w")

    @async_test
    async def test_of_several_that_find_it_missing_one_records_it(self, tmp_path: Path) -> None:
        async with self.make_stores(tmp_path) as stores:
            made = await asyncio.gather(*(stores.expectations.put(expectation()) for _ in range(CONCURRENT)))
            (first,) = [each for each in made if each is not None]
            changed = await asyncio.gather(
                *(
                    stores.expectations.put(moved_on(first, 150 + number), missing(150 + number))
                    for number in range(CONCURRENT)
                )
            )
            (winner,) = [each for each in changed if each is not None]
            (row,) = await stores.hooks.take(CONCURRENT)
            assert row.at == winner.since
            assert not await stores.expectations.remove(first)
            assert await stores.expectations.remove(winner)
            assert not await stores.expectations.remove(winner)
            assert await stores.expectations.put(winner, missing(500)) is None
            assert await stores.hooks.take(CONCURRENT) == []
            assert await stores.expectations.find("w") is None

    @async_test
    async def test_periods_that_are_over_are_ordered_by_time(self, tmp_path: Path) -> None:
        async with self.make_stores(tmp_path) as stores:
            for name, since in (("b", 300), ("a", 200), ("c", 400), ("w", 100)):
                await stores.put(expectation(name, since))
            due = stores.expectations.due
            assert [each.workflow for each in await due(350, 10)] == ["w", "a", "b"]
            assert [each.workflow for each in await due(349, 10)] == ["w", "a"]
            assert [each.workflow for each in await due(1_000, 1)] == ["w"]
            assert [each.workflow for each in await stores.expectations.list()] == ["a", "b", "c", "w"]
            assert await stores.expectations.find("unknown") is None
            assert await stores.expectations.find("\0") is None

    @async_test
    async def test_only_completions_of_deployed_versions_in_real_time_count(self, tmp_path: Path) -> None:
        async with self.make_stores(tmp_path) as stores:
            last = stores.expectations.last_completed
            assert await last("w", 0) is None
            await stores.run("a", 20)
            await stores.run("b", 10)
            for number in range(MANY):
                await stores.run(f"fake{number:03}", 30 + number, fake_time=True)
            await stores.run("unstored", 500, version=None)
            await stores.run("failed", 500, "failed")
            await stores.run("cancelled", 500, "cancelled")
            await stores.run("other", 500, workflow="v")
            await stores.journal.accept(execution_record("running", version=1))
            assert await last("w", 0) == 20
            assert await last("w", 19) == 20
            assert await last("w", 20) is None
            assert await last("v", 0) == 500
            await stores.run("text", 40, labels={"note": "fake_time"})
            assert await last("w", 0) == 40

    @async_test
    async def test_removed_completions_still_count(self, tmp_path: Path) -> None:
        async with self.make_stores(tmp_path) as stores:
            for name in ("w", "v", "u"):
                await stores.put(expectation(name))
            await stores.run("w1", 110)
            await stores.run("w2", 130)
            await stores.run("w3", 140, "failed")
            await stores.run("v1", 90, workflow="v")
            await stores.run("u1", 120, workflow="u")
            removed = await stores.retention.collect([Rule(keep=0), Rule(workflow="u", keep=1)], 10**12)
            assert removed.executions == 4
            assert await stores.expectations.last_completed("w", 100) is None
            found = {each.workflow: each for each in await stores.expectations.list()}
            assert (found["w"].since, found["w"].due, found["w"].revision) == (130, 180, 2)
            assert found["v"] == replace(expectation("v"), revision=1)
            assert found["u"] == replace(expectation("u"), revision=1)
            assert await stores.expectations.last_completed("u", 100) == 120

    @async_test
    async def test_tick_that_starts_nothing_is_recorded_with_the_schedule(self, tmp_path: Path) -> None:
        new = Trigger(
            id=trigger_id("w", "clock"),
            workflow="w",
            node="clock",
            version=2,
            hash="h",
            at=5,
            schedule=Schedule(cron="* * * * *", timezone="UTC"),
            standing=ScheduleState(100),
            due=100,
        )
        async with self.make_stores(tmp_path) as stores:
            stored = await stores.triggers.put(new)
            assert stored is not None
            assert await stores.hooks.take(10) == []
            puts = (
                stores.triggers.put(replace(stored, due=number), missing(number, "clock"))
                for number in range(CONCURRENT)
            )
            (winner,) = [each for each in await asyncio.gather(*puts) if each is not None]
        async with self.make_stores(tmp_path) as stores:
            (row,) = await stores.hooks.take(CONCURRENT)
            assert row.missing == missing(winner.due or 0, "clock")
            assert await stores.triggers.find(new.id) == winner
