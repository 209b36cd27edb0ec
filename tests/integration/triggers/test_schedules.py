"""Schedules with a settable clock: each tick starts one execution."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from rune.core.schedules import RETRY_DELAY_MS
from rune.ports.journal import Missing, StoreUnavailableError
from rune.ports.workflows import Trigger, TriggerStore
from rune.runtime.maintenance.trigger_scheduler import TriggerScheduler
from tests.integration.triggers.scheduler_harness import (
    DAY,
    DEADLINE,
    HOUR,
    MINUTE,
    SchedulerHarness,
    moment,
    open_harness,
    run,
)
from tests.support.trigger_workflows import schedule_workflow
from tests.support.whole import WHOLE

NOON = moment("2026-05-01T12:00:00")


def test_interval_ticks_do_not_drift(tmp_path: Path) -> None:
    async def work(harness: SchedulerHarness) -> None:
        await harness.deploy(schedule_workflow(amount=10, unit="minutes"))
        assert await harness.run_at(NOON + 9 * MINUTE) == []
        assert await harness.run_at(NOON + 10 * MINUTE + 7_000) == ["2026-05-01T12:10:00Z"]
        assert await harness.run_at(NOON + 10 * MINUTE + 9_000) == []
        await harness.deploy({**schedule_workflow(amount=10, unit="minutes"), "name": "second"})
        assert await harness.run_at(NOON + 20 * MINUTE + 29_000) == ["2026-05-01T12:20:00Z"]
        assert await harness.run_at(NOON + 30 * MINUTE) == ["2026-05-01T12:30:00Z"]
        (last, *_) = await harness.executions()
        assert last.labels == {"trigger": (await harness.trigger()).id}

    run(tmp_path, NOON, work)


@pytest.mark.parametrize(
    ("catch_up", "expected"),
    [
        ({}, []),
        ({"catch_up": False}, []),
        ({"catch_up": "latest"}, ["2026-05-01T17:00:00Z"]),
        ({"catch_up": True}, [f"2026-05-01T{hour}:00:00Z" for hour in range(13, 18)]),
        ({"catch_up": "all", "catch_up_limit": 2}, ["2026-05-01T16:00:00Z", "2026-05-01T17:00:00Z"]),
    ],
)
def test_missed_ticks_follow_catch_up_setting(
    catch_up: dict[str, Any], expected: list[str], tmp_path: Path
) -> None:
    async def work(harness: SchedulerHarness) -> None:
        await harness.deploy(schedule_workflow(cron="0 * * * *", overlap="allow", **catch_up))
        assert await harness.run_at(NOON + 5 * HOUR + 30 * MINUTE) == expected
        assert await harness.run_at(NOON + 6 * HOUR) == ["2026-05-01T18:00:00Z"]

    run(tmp_path, NOON, work)


def test_clock_jumps_start_no_tick_twice(tmp_path: Path) -> None:
    async def work(harness: SchedulerHarness) -> None:
        await harness.deploy(schedule_workflow(cron="* * * * *", overlap="allow", catch_up="latest"))
        assert await harness.run_at(NOON + MINUTE) == ["2026-05-01T12:01:00Z"]
        assert await harness.run_at(NOON - DAY) == []
        assert await harness.run_at(NOON) == []
        assert await harness.run_at(NOON + MINUTE) == []
        assert await harness.run_at(NOON + 2 * MINUTE) == ["2026-05-01T12:02:00Z"]
        assert await harness.run_at(NOON + 400 * DAY) == ["2027-06-05T12:00:00Z"]
        assert await harness.run_at(NOON + 3 * MINUTE) == []

    run(tmp_path, NOON, work)


def test_daylight_saving_change_starts_each_tick_once(tmp_path: Path) -> None:
    async def work(harness: SchedulerHarness) -> None:
        await harness.deploy(schedule_workflow(cron="30 2 * * *", timezone="Europe/Berlin", overlap="allow"))
        await harness.run_through(moment("2026-03-28T00:00:00", "Europe/Berlin"), 3 * DAY)
        spring = ["2026-03-28T01:30:00Z", "2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"]
        assert await harness.started_times() == spring
        begin = moment("2026-10-24T00:00:00", "Europe/Berlin")
        await harness.services.triggers.enable("report", False)
        harness.clock.set(begin)
        await harness.services.triggers.enable("report", True)
        await harness.run_through(begin, 3 * DAY)
        autumn = ["2026-10-24T00:30:00Z", "2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"]
        assert await harness.started_times() == spring + autumn

    run(tmp_path, moment("2026-03-27T12:00:00"), work)


def test_overlap_skip_skips_ticks_while_running(tmp_path: Path) -> None:
    async def work(harness: SchedulerHarness) -> None:
        await harness.deploy(schedule_workflow(amount=1, unit="minutes", waits=True))
        assert await harness.run_at(NOON + MINUTE) == ["2026-05-01T12:01:00Z"]
        assert await harness.run_at(NOON + 2 * MINUTE) == []
        (running,) = await harness.executions()
        await harness.end(running.id)
        assert await harness.run_at(NOON + 2 * MINUTE + 30_000) == []
        assert await harness.run_at(NOON + 3 * MINUTE) == ["2026-05-01T12:03:00Z"]

    run(tmp_path, NOON, work)


def test_overlap_queue_starts_ticks_one_after_another(tmp_path: Path) -> None:
    async def work(harness: SchedulerHarness) -> None:
        await harness.deploy(schedule_workflow(amount=1, unit="minutes", waits=True, overlap="queue"))
        assert await harness.run_at(NOON + MINUTE) == ["2026-05-01T12:01:00Z"]
        assert await harness.run_at(NOON + 2 * MINUTE) == []
        assert await harness.run_at(NOON + 3 * MINUTE) == []
        assert len((await harness.trigger()).standing.waiting) == 2
        for number in (2, 3):
            (newest, *_) = await harness.executions()
            await harness.end(newest.id)
            late = NOON + 3 * MINUTE + number * RETRY_DELAY_MS
            assert await harness.run_at(late) == [f"2026-05-01T12:0{number}:00Z"]

    run(tmp_path, NOON, work)


def test_overlap_cancel_cancels_previous_execution(tmp_path: Path) -> None:
    async def work(harness: SchedulerHarness) -> None:
        await harness.deploy(schedule_workflow(amount=1, unit="minutes", waits=True, overlap="cancel"))
        for number in (1, 2, 3):
            await harness.run_at(NOON + number * MINUTE)
        newest, *others = await harness.executions()
        assert newest.status == "running"
        assert [each.status for each in others] == ["cancelled", "cancelled"]

    run(tmp_path, NOON, work)


def test_overlap_allow_runs_ticks_in_parallel(tmp_path: Path) -> None:
    async def work(harness: SchedulerHarness) -> None:
        await harness.deploy(schedule_workflow(amount=1, unit="minutes", waits=True, overlap="allow"))
        for number in (1, 2, 3):
            await harness.run_at(NOON + number * MINUTE)
        assert [each.status for each in await harness.executions()] == ["running"] * 3

    run(tmp_path, NOON, work)


class InterleavingStore:
    """A trigger store that runs other schedulers after each write."""

    def __init__(self, inner: TriggerStore, others: list[TriggerScheduler]) -> None:
        self._inner = inner
        self._others = others

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def put(self, trigger: Trigger, missing: Missing | None = None) -> Trigger | None:
        stored = await self._inner.put(trigger, missing)
        await asyncio.gather(*(each.turn() for each in self._others))
        return stored


def test_h_i2_concurrent_schedulers_start_each_tick_once(tmp_path: Path) -> None:
    """Fails if a tick starts under a new id without a key."""

    async def work(harness: SchedulerHarness) -> None:
        await harness.deploy(schedule_workflow(amount=1, unit="minutes", overlap="allow", catch_up="all"))
        others = [harness.new_scheduler() for _ in range(4)]
        shared: Any = InterleavingStore(harness.triggers, others)
        schedulers = [*others, *(harness.engine.trigger_scheduler(shared) for _ in range(2))]
        for number in (1, 2, 5, 6, 9):
            harness.clock.set(NOON + number * MINUTE)
            await asyncio.gather(*(each.turn() for each in schedulers))
            await schedulers[-1].turn()
        found = sorted(await harness.started_times())
        assert found == [f"2026-05-01T12:0{number}:00Z" for number in range(1, 10)]

    run(tmp_path, NOON, work)


class CrashingStore:
    """A trigger store that fails before or after one of its writes."""

    def __init__(self, inner: TriggerStore, at: int, *, after: bool) -> None:
        self._inner = inner
        self._at = at
        self._after = after
        self.writes = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def put(self, trigger: Trigger, missing: Missing | None = None) -> Trigger | None:
        self.writes += 1
        crashes = self.writes == self._at
        if crashes and not self._after:
            raise StoreUnavailableError("crashed")
        stored = await self._inner.put(trigger, missing)
        if crashes:
            raise StoreUnavailableError("crashed")
        return stored


@pytest.mark.parametrize("overlap", ["skip", "queue", "allow", "cancel"] if WHOLE else ["queue"])
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("at", [1, 2, 3, 4])
def test_h_i2_crashed_scheduler_loses_no_tick_and_starts_none_twice(
    at: int, after: bool, overlap: str, tmp_path: Path
) -> None:
    """Fails if `advance` drops the tick that is about to start."""

    async def run_scheduler(harness: SchedulerHarness, scheduler: TriggerScheduler) -> bool:
        try:
            await scheduler.turn()
        except StoreUnavailableError:
            return False
        finally:
            for each in await harness.executions():
                await (await harness.engine.wait_for(each.id))
        return True

    async def go() -> None:
        async with open_harness(tmp_path, NOON) as harness:
            await harness.deploy(schedule_workflow(amount=1, unit="minutes", overlap=overlap))
            crashing: Any = CrashingStore(harness.triggers, at, after=after)
            scheduler = harness.engine.trigger_scheduler(crashing)
            alive, reached = True, 0
            while alive and reached < 2:
                reached += 1
                harness.clock.set(NOON + reached * MINUTE)
                alive = await run_scheduler(harness, scheduler)
            assert not alive
        # Another process opens the same file.
        async with open_harness(tmp_path, NOON + reached * MINUTE + 5_000) as harness:
            assert await run_scheduler(harness, harness.scheduler)
            harness.clock.set(NOON + 2 * MINUTE + 10_000)
            assert await run_scheduler(harness, harness.scheduler)
            assert await harness.started_times() == ["2026-05-01T12:01:00Z", "2026-05-01T12:02:00Z"]
            assert await harness.run_at(NOON + 2 * MINUTE + 20_000) == []

    async def bounded() -> None:
        async with asyncio.timeout(DEADLINE):
            await go()

    asyncio.run(bounded())


def test_rejected_start_is_stored_and_schedule_continues(tmp_path: Path) -> None:
    async def work(harness: SchedulerHarness) -> None:
        schema = {"type": "object", "required": ["customer"]}
        await harness.deploy({**schedule_workflow(amount=1, unit="minutes"), "inputs": schema})
        assert await harness.run_at(NOON + MINUTE) == []
        assert "customer" in (await harness.trigger()).trouble
        await harness.deploy(schedule_workflow(amount=1, unit="minutes"))
        assert await harness.run_at(NOON + 2 * MINUTE) == ["2026-05-01T12:02:00Z"]
        assert (await harness.trigger()).trouble == ""

    run(tmp_path, NOON, work)


def test_disabled_schedule_is_never_due_and_catches_nothing_up(tmp_path: Path) -> None:
    async def work(harness: SchedulerHarness) -> None:
        await harness.deploy(
            schedule_workflow(amount=1, unit="minutes", overlap="queue", catch_up="all", waits=True)
        )
        assert await harness.run_at(NOON + MINUTE) == ["2026-05-01T12:01:00Z"]
        assert await harness.run_at(NOON + 2 * MINUTE) == []
        off = await harness.services.triggers.enable("report", False)
        assert (off.due, off.standing.waiting) == (None, ())
        (running,) = await harness.executions()
        await harness.end(running.id)
        assert await harness.run_at(NOON + 5 * MINUTE) == []
        harness.clock.set(NOON + 7 * MINUTE + 1)
        await harness.services.triggers.enable("report", True)
        assert await harness.run_at(NOON + 7 * MINUTE + 2) == []
        assert await harness.run_at(NOON + 8 * MINUTE) == ["2026-05-01T12:08:00Z"]

    run(tmp_path, NOON, work)


def test_pending_tick_starts_although_disabled_meanwhile(tmp_path: Path) -> None:
    async def work(harness: SchedulerHarness) -> None:
        await harness.deploy(schedule_workflow(amount=1, unit="minutes"))
        crashing: Any = CrashingStore(harness.triggers, 1, after=True)
        harness.clock.set(NOON + MINUTE)
        with pytest.raises(StoreUnavailableError):
            await harness.engine.trigger_scheduler(crashing).turn()
        await harness.services.triggers.enable("report", False)
        assert await harness.run_at(NOON + MINUTE + 1) == ["2026-05-01T12:01:00Z"]
        assert (await harness.trigger()).due is None
        assert await harness.run_at(NOON + 2 * MINUTE) == []

    run(tmp_path, NOON, work)


def test_reconcile_publishes_missing_triggers(tmp_path: Path) -> None:
    async def work(harness: SchedulerHarness) -> None:
        await harness.deploy(schedule_workflow(amount=1, unit="minutes"))
        await harness.deploy(
            {**schedule_workflow(), "id": "plain", "nodes": [{"id": "a", "type": "noop"}], "edges": []}
        )
        await harness.triggers.remove(await harness.trigger())
        triggers = harness.engine.services.triggers
        await triggers.reconcile()
        assert await harness.run_at(NOON + MINUTE) == ["2026-05-01T12:01:00Z"]
        await harness.engine.backend.workflows.archive("report", NOON)
        await triggers.reconcile()
        assert await harness.triggers.list() == []

    run(tmp_path, NOON, work)
