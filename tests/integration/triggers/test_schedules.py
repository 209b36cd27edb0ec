"""Schedules by a clock that is told the time: each tick starts one execution, whatever the clock and schedulers do."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from rune.core.triggers import RETRY_DELAY_MS
from rune.ports.journal import StoreUnavailableError
from rune.ports.triggers import Trigger, TriggerStore
from rune.runtime.maintenance.trigger_scheduler import TriggerScheduler
from tests.integration.triggers.helping import (
    DAY,
    DEADLINE,
    HOUR,
    MINUTE,
    Clockwork,
    clockwork,
    moment,
    run,
    scheduled,
)
from tests.support.whole import WHOLE

NOON = moment("2026-05-01T12:00:00")


def test_every_so_often_from_the_moment_it_was_published_without_drift(tmp_path: Path) -> None:
    async def work(made: Clockwork) -> None:
        await made.deploy(scheduled(amount=10, unit="minutes"))
        assert await made.at(NOON + 9 * MINUTE) == []
        assert await made.at(NOON + 10 * MINUTE + 7_000) == ["2026-05-01T12:10:00Z"]
        assert await made.at(NOON + 10 * MINUTE + 9_000) == []
        await made.deploy({**scheduled(amount=10, unit="minutes"), "name": "as before"})
        assert await made.at(NOON + 20 * MINUTE + 29_000) == ["2026-05-01T12:20:00Z"]
        assert await made.at(NOON + 30 * MINUTE) == ["2026-05-01T12:30:00Z"]
        (last, *_) = await made.executions()
        assert last.labels == {"trigger": (await made.one()).id}

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
def test_times_that_were_missed_are_made_up_for_as_the_schedule_says(
    catch_up: dict[str, Any], expected: list[str], tmp_path: Path
) -> None:
    async def work(made: Clockwork) -> None:
        await made.deploy(scheduled(cron="0 * * * *", overlap="allow", **catch_up))
        assert await made.at(NOON + 5 * HOUR + 30 * MINUTE) == expected
        assert await made.at(NOON + 6 * HOUR) == ["2026-05-01T18:00:00Z"]

    run(tmp_path, NOON, work)


def test_clocks_that_jump_start_nothing_twice_and_nothing_of_the_past(tmp_path: Path) -> None:
    async def work(made: Clockwork) -> None:
        await made.deploy(scheduled(cron="* * * * *", overlap="allow", catch_up="latest"))
        assert await made.at(NOON + MINUTE) == ["2026-05-01T12:01:00Z"]
        assert await made.at(NOON - DAY) == []
        assert await made.at(NOON) == []
        assert await made.at(NOON + MINUTE) == []
        assert await made.at(NOON + 2 * MINUTE) == ["2026-05-01T12:02:00Z"]
        assert await made.at(NOON + 400 * DAY) == ["2027-06-05T12:00:00Z"]
        assert await made.at(NOON + 3 * MINUTE) == []

    run(tmp_path, NOON, work)


def test_on_the_days_on_which_clocks_change_each_tick_comes_once(tmp_path: Path) -> None:
    async def work(made: Clockwork) -> None:
        await made.deploy(scheduled(cron="30 2 * * *", timezone="Europe/Berlin", overlap="allow"))
        await made.pass_through(moment("2026-03-28T00:00:00", "Europe/Berlin"), 3 * DAY)
        spring = ["2026-03-28T01:30:00Z", "2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"]
        assert await made.started() == spring
        begin = moment("2026-10-24T00:00:00", "Europe/Berlin")
        await made.services.triggers.enable("report", False)
        made.clock.put(begin)
        await made.services.triggers.enable("report", True)
        await made.pass_through(begin, 3 * DAY)
        autumn = ["2026-10-24T00:30:00Z", "2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"]
        assert await made.started() == spring + autumn

    run(tmp_path, moment("2026-03-27T12:00:00"), work)


def test_while_the_one_before_runs_ticks_are_left_out(tmp_path: Path) -> None:
    async def work(made: Clockwork) -> None:
        await made.deploy(scheduled(amount=1, unit="minutes", waits=True))
        assert await made.at(NOON + MINUTE) == ["2026-05-01T12:01:00Z"]
        assert await made.at(NOON + 2 * MINUTE) == []
        (running,) = await made.executions()
        await made.end(running.id)
        assert await made.at(NOON + 2 * MINUTE + 30_000) == []
        assert await made.at(NOON + 3 * MINUTE) == ["2026-05-01T12:03:00Z"]

    run(tmp_path, NOON, work)


def test_a_tick_may_wait_for_the_one_before(tmp_path: Path) -> None:
    async def work(made: Clockwork) -> None:
        await made.deploy(scheduled(amount=1, unit="minutes", waits=True, overlap="queue"))
        assert await made.at(NOON + MINUTE) == ["2026-05-01T12:01:00Z"]
        assert await made.at(NOON + 2 * MINUTE) == []
        assert await made.at(NOON + 3 * MINUTE) == []
        assert len((await made.one()).standing.waiting) == 2
        for number in (2, 3):
            (newest, *_) = await made.executions()
            await made.end(newest.id)
            late = NOON + 3 * MINUTE + number * RETRY_DELAY_MS
            assert await made.at(late) == [f"2026-05-01T12:0{number}:00Z"]

    run(tmp_path, NOON, work)


def test_a_tick_may_cancel_the_one_before(tmp_path: Path) -> None:
    async def work(made: Clockwork) -> None:
        await made.deploy(scheduled(amount=1, unit="minutes", waits=True, overlap="cancel"))
        for number in (1, 2, 3):
            await made.at(NOON + number * MINUTE)
        newest, *others = await made.executions()
        assert newest.status == "running"
        assert [each.status for each in others] == ["cancelled", "cancelled"]

    run(tmp_path, NOON, work)


def test_any_number_may_run_beside_each_other_where_that_is_allowed(tmp_path: Path) -> None:
    async def work(made: Clockwork) -> None:
        await made.deploy(scheduled(amount=1, unit="minutes", waits=True, overlap="allow"))
        for number in (1, 2, 3):
            await made.at(NOON + number * MINUTE)
        assert [each.status for each in await made.executions()] == ["running"] * 3

    run(tmp_path, NOON, work)


class Meanwhile:
    """A store beside whose user others take their turns, each time it has written."""

    def __init__(self, inner: TriggerStore, others: list[TriggerScheduler]) -> None:
        self._inner = inner
        self._others = others

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def put(self, trigger: Trigger) -> Trigger | None:
        stored = await self._inner.put(trigger)
        await asyncio.gather(*(each.turn() for each in self._others))
        return stored


def test_h_i2_many_schedulers_at_once_start_each_tick_once(tmp_path: Path) -> None:
    """Red: let `Starts.tick` start under a new id and no key."""

    async def work(made: Clockwork) -> None:
        await made.deploy(scheduled(amount=1, unit="minutes", overlap="allow", catch_up="all"))
        crew = [made.another() for _ in range(4)]
        shared: Any = Meanwhile(made.triggers, crew)
        crowd = [*crew, *(made.engine.trigger_scheduler(shared) for _ in range(2))]
        for number in (1, 2, 5, 6, 9):
            made.clock.put(NOON + number * MINUTE)
            await asyncio.gather(*(each.turn() for each in crowd))
            await crowd[-1].turn()
        found = sorted(await made.started())
        assert found == [f"2026-05-01T12:0{number}:00Z" for number in range(1, 10)]

    run(tmp_path, NOON, work)


class Dying:
    """A store whose user dies around one of its writes."""

    def __init__(self, inner: TriggerStore, at: int, *, after: bool) -> None:
        self._inner = inner
        self._at = at
        self._after = after
        self.writes = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def put(self, trigger: Trigger) -> Trigger | None:
        self.writes += 1
        dies = self.writes == self._at
        if dies and not self._after:
            raise StoreUnavailableError("dead")
        stored = await self._inner.put(trigger)
        if dies:
            raise StoreUnavailableError("dead")
        return stored


@pytest.mark.parametrize("overlap", ["skip", "queue", "allow", "cancel"] if WHOLE else ["queue"])
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("at", [1, 2, 3, 4])
def test_h_i2_a_scheduler_that_dies_anywhere_loses_no_tick_and_starts_none_twice(
    at: int, after: bool, overlap: str, tmp_path: Path
) -> None:
    """Red: let `advance` forget what is about to start."""

    async def ticked(made: Clockwork, ticker: TriggerScheduler) -> bool:
        try:
            await ticker.turn()
        except StoreUnavailableError:
            return False
        finally:
            for each in await made.executions():
                await (await made.engine.wait_for(each.id))
        return True

    async def go() -> None:
        async with clockwork(tmp_path, NOON) as made:
            await made.deploy(scheduled(amount=1, unit="minutes", overlap=overlap))
            dying: Any = Dying(made.triggers, at, after=after)
            ticker = made.engine.trigger_scheduler(dying)
            alive, reached = True, 0
            while alive and reached < 2:
                reached += 1
                made.clock.put(NOON + reached * MINUTE)
                alive = await ticked(made, ticker)
            assert not alive
        # Another process finds the file as it was left.
        async with clockwork(tmp_path, NOON + reached * MINUTE + 5_000) as made:
            assert await ticked(made, made.ticker)
            made.clock.put(NOON + 2 * MINUTE + 10_000)
            assert await ticked(made, made.ticker)
            assert await made.started() == ["2026-05-01T12:01:00Z", "2026-05-01T12:02:00Z"]
            assert await made.at(NOON + 2 * MINUTE + 20_000) == []

    async def bounded() -> None:
        async with asyncio.timeout(DEADLINE):
            await go()

    asyncio.run(bounded())


def test_a_start_that_is_refused_stops_nothing_and_is_told(tmp_path: Path) -> None:
    async def work(made: Clockwork) -> None:
        schema = {"type": "object", "required": ["customer"]}
        await made.deploy({**scheduled(amount=1, unit="minutes"), "inputs": schema})
        assert await made.at(NOON + MINUTE) == []
        assert "customer" in (await made.one()).trouble
        await made.deploy(scheduled(amount=1, unit="minutes"))
        assert await made.at(NOON + 2 * MINUTE) == ["2026-05-01T12:02:00Z"]
        assert (await made.one()).trouble == ""

    run(tmp_path, NOON, work)


def test_one_that_is_switched_off_is_never_due_and_makes_nothing_up(tmp_path: Path) -> None:
    async def work(made: Clockwork) -> None:
        await made.deploy(scheduled(amount=1, unit="minutes", overlap="queue", catch_up="all", waits=True))
        assert await made.at(NOON + MINUTE) == ["2026-05-01T12:01:00Z"]
        assert await made.at(NOON + 2 * MINUTE) == []
        off = await made.services.triggers.enable("report", False)
        assert (off.due, off.standing.waiting) == (None, ())
        (running,) = await made.executions()
        await made.end(running.id)
        assert await made.at(NOON + 5 * MINUTE) == []
        made.clock.put(NOON + 7 * MINUTE + 1)
        await made.services.triggers.enable("report", True)
        assert await made.at(NOON + 7 * MINUTE + 2) == []
        assert await made.at(NOON + 8 * MINUTE) == ["2026-05-01T12:08:00Z"]

    run(tmp_path, NOON, work)


def test_a_tick_that_is_about_to_start_starts_also_when_it_is_switched_off_meanwhile(tmp_path: Path) -> None:
    async def work(made: Clockwork) -> None:
        await made.deploy(scheduled(amount=1, unit="minutes"))
        dying: Any = Dying(made.triggers, 1, after=True)
        made.clock.put(NOON + MINUTE)
        with pytest.raises(StoreUnavailableError):
            await made.engine.trigger_scheduler(dying).turn()
        await made.services.triggers.enable("report", False)
        assert await made.at(NOON + MINUTE + 1) == ["2026-05-01T12:01:00Z"]
        assert (await made.one()).due is None
        assert await made.at(NOON + 2 * MINUTE) == []

    run(tmp_path, NOON, work)


def test_what_was_deployed_and_not_published_is_published_by_whoever_schedules(tmp_path: Path) -> None:
    async def work(made: Clockwork) -> None:
        await made.deploy(scheduled(amount=1, unit="minutes"))
        await made.deploy({**scheduled(), "id": "plain", "nodes": [{"id": "a", "type": "noop"}], "edges": []})
        await made.triggers.remove(await made.one())
        book = made.engine.services.triggers
        await book.reconcile()
        assert await made.at(NOON + MINUTE) == ["2026-05-01T12:01:00Z"]
        await made.engine.backend.workflows.archive("report", NOON)
        await book.reconcile()
        assert await made.triggers.list() == []

    run(tmp_path, NOON, work)
