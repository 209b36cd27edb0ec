"""Ticks of schedules: due and missed ticks, catch-up and overlap policies."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rune.core.node_type import NodeType
from rune.core.schedules import (
    MAX_WAITING_TICKS,
    ON_TIME_MS,
    RETRY_DELAY_MS,
    CatchUp,
    Following,
    Overlap,
    Schedule,
    ScheduleState,
    advance,
    due,
    every,
    next_start,
    started,
)

MINUTE = 60_000
HOURLY = every(0, 60 * MINUTE)
MINUTELY = every(0, MINUTE)


def schedule(overlap: Overlap = "skip", catch_up: CatchUp = "none", limit: int = 100) -> Schedule:
    return Schedule(every=MINUTE, overlap=overlap, catch_up=catch_up, limit=limit)


def until(last: int) -> Following:
    """Ticks every minute up to the last one."""
    return lambda moment: found if (found := MINUTELY(moment)) is not None and found <= last else None


@given(st.integers(-(10**13), 10**13), st.integers(1, 10**9), st.integers(-(10**13), 10**13))
def test_interval_does_not_drift(anchor: int, period: int, moment: int) -> None:
    tick = every(anchor, period)(moment)
    assert tick is not None
    assert moment < tick <= moment + period
    assert (tick - anchor) % period == 0


def test_no_tick_is_due_before_its_time() -> None:
    assert due(schedule(), MINUTELY, MINUTE, MINUTE - 1) == ((), MINUTE)
    assert due(schedule(), MINUTELY, None, MINUTE) == ((), None)


@pytest.mark.parametrize("catch_up", ["none", "latest", "all"])
def test_tick_within_tolerance_is_not_missed(catch_up: CatchUp) -> None:
    assert due(schedule(catch_up=catch_up), MINUTELY, MINUTE, MINUTE + ON_TIME_MS) == ((MINUTE,), 2 * MINUTE)


@pytest.mark.parametrize(
    ("catch_up", "limit", "found"),
    [("none", 100, ()), ("latest", 100, (5,)), ("all", 100, (1, 2, 3, 4, 5)), ("all", 2, (4, 5))],
)
def test_missed_ticks_by_catch_up_policy(catch_up: CatchUp, limit: int, found: tuple[int, ...]) -> None:
    now = 5 * MINUTE + ON_TIME_MS + 1
    hours = tuple(each * MINUTE for each in found)
    assert due(schedule(catch_up=catch_up, limit=limit), MINUTELY, MINUTE, now) == (hours, 6 * MINUTE)


def test_catch_up_after_long_outage_computes_few_ticks() -> None:
    calls: list[int] = []

    def count_calls(moment: int) -> int | None:
        calls.append(moment)
        return MINUTELY(moment)

    year = 365 * 24 * 60 * MINUTE
    found, after = due(schedule(catch_up="all"), count_calls, MINUTE, year)
    assert found == tuple(range(year - 99 * MINUTE, year + 1, MINUTE))
    assert after == year + MINUTE
    assert len(calls) < 1_000
    assert due(schedule(catch_up="latest"), HOURLY, 60 * MINUTE, year - 1)[0] == (year - 60 * MINUTE,)


def test_due_ticks_are_capped() -> None:
    seconds = every(0, 100)
    found, _ = due(schedule(), seconds, 100, ON_TIME_MS)
    assert found == tuple(range(ON_TIME_MS - 99 * 100, ON_TIME_MS + 1, 100))


def test_schedule_without_further_ticks_ends() -> None:
    last = until(2 * MINUTE)
    assert due(schedule(catch_up="all"), last, MINUTE, 3 * MINUTE) == ((MINUTE, 2 * MINUTE), None)
    ended = advance(schedule(), last, ScheduleState(2 * MINUTE), 2 * MINUTE, running=False)
    assert ended == ScheduleState(None, (), 2 * MINUTE)
    assert next_start(started(ended, "x"), 3 * MINUTE) is None
    assert next_start(ScheduleState(None, (1,)), 3 * MINUTE) == 3 * MINUTE + RETRY_DELAY_MS


CASES: list[tuple[Overlap, bool, tuple[int, ...], tuple[int | None, tuple[int, ...]]]] = [
    ("skip", False, (), (4, ())),
    ("skip", True, (), (None, ())),
    ("skip", False, (2, 3), (2, (3, 4))),
    ("queue", False, (), (4, ())),
    ("queue", True, (), (None, (4,))),
    ("queue", False, (2, 3), (2, (3, 4))),
    ("queue", True, (2, 3), (None, (2, 3, 4))),
    ("allow", True, (2,), (2, (4,))),
    ("cancel", True, (), (4, ())),
    ("cancel", True, (2, 3), (4, ())),
    ("cancel", False, (2, 3), (4, ())),
]


@pytest.mark.parametrize(("overlap", "running", "waiting", "expected"), CASES)
def test_advance_by_overlap_policy(overlap: Overlap, running: bool, waiting: Any, expected: Any) -> None:
    queued = tuple(each * MINUTE for each in waiting)
    found = advance(
        schedule(overlap),
        MINUTELY,
        ScheduleState(4 * MINUTE, queued, None, "x1"),
        4 * MINUTE,
        running=running,
    )
    starting = None if expected[0] is None else expected[0] * MINUTE
    assert found == ScheduleState(5 * MINUTE, tuple(each * MINUTE for each in expected[1]), starting, "x1")


def test_advance_keeps_state_while_start_is_pending() -> None:
    starting_state = ScheduleState(MINUTE, (), 5, "x1")
    assert advance(schedule(), MINUTELY, starting_state, 9 * MINUTE, running=True) is starting_state
    assert next_start(starting_state, 7) == 7
    assert started(starting_state, "x2") == ScheduleState(MINUTE, (), None, "x2")
    assert started(starting_state, None) == ScheduleState(MINUTE, (), None, "x1")


def test_next_start_is_next_tick_or_retry_delay() -> None:
    assert next_start(ScheduleState(MINUTE), 0) == MINUTE
    assert next_start(ScheduleState(MINUTE, (1,)), 0) == RETRY_DELAY_MS
    assert next_start(ScheduleState(MINUTE, (1,)), MINUTE - 1) == MINUTE


def test_waiting_ticks_are_bounded() -> None:
    queued = tuple(range(MAX_WAITING_TICKS))
    found = advance(schedule("queue"), MINUTELY, ScheduleState(MINUTE, queued), MINUTE, running=True)
    assert found == ScheduleState(2 * MINUTE, queued)


def test_same_times_compares_cron_and_timezone() -> None:
    one = Schedule(cron="* * * * *", timezone="UTC")
    assert one.same_times(Schedule(cron="* * * * *", timezone="UTC", overlap="queue", catch_up="all"))
    assert not one.same_times(Schedule(cron="* * * * *", timezone="Europe/Berlin"))
    assert not one.same_times(None)


def test_node_type_has_no_trigger_by_default() -> None:
    assert NodeType(name="x").starts({}) is None
