"""Cron expressions across daylight saving changes."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rune.core.schedules import Schedule
from rune.nodes.control.schedule import cron, cron_error, next_tick
from tests.integration.triggers.scheduler_harness import DAY, MINUTE, moment

EXPRESSIONS = [
    "30 2 * * *",
    "0,30 1-3 * * *",
    "*/20 * * * *",
    "15 */2 * * *",
    "* 2 * * *",
    "0 0 * * *",
    "59 23 28-31 3,10 *",
    "0 3 * * 0",
]
ZONES = ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Santiago", "UTC"]
CHANGES = ["2026-03-08", "2026-03-29", "2026-04-05", "2026-09-06", "2026-10-04", "2026-10-25", "2026-11-01"]


def _ticks(expression: str, zone: str, begin: int, end: int) -> list[int]:
    found: list[int] = []
    after, tick = cron(expression, zone), begin
    while True:
        following_tick = after(tick)
        if following_tick is None or following_tick > end:
            return found
        found.append(following_tick)
        tick = following_tick


@settings(deadline=None, max_examples=60)
@given(
    st.sampled_from(EXPRESSIONS),
    st.sampled_from(ZONES),
    st.sampled_from(CHANGES),
    st.integers(0, 3 * DAY - 1),
)
def test_next_tick_is_independent_of_start_time(expression: str, zone: str, day: str, offset: int) -> None:
    begin = moment(f"{day}T00:00:00", zone) - DAY
    end = begin + 3 * DAY
    ticks = _ticks(expression, zone, begin, end)
    assert ticks == sorted(set(ticks))
    after = cron(expression, zone)(begin + offset)
    ahead = [tick for tick in ticks if tick > begin + offset]
    if ahead:
        assert after == ahead[0]
    else:
        assert after is None or after > end


@pytest.mark.parametrize(
    ("expression", "day", "expected"),
    [
        ("30 2 * * *", "2026-03-29", ["01:00"]),
        ("30 2 * * *", "2026-10-25", ["00:30"]),
        ("0,30 2,3 * * *", "2026-03-29", ["01:00", "01:30"]),
        ("0 * * * *", "2026-10-25", [f"{hour:02}:00" for hour in range(24)]),
    ],
)
def test_skipped_time_is_due_after_gap_and_repeated_time_once(
    expression: str, day: str, expected: list[str]
) -> None:
    begin = moment(f"{day}T00:00:00") - 1
    found = _ticks(expression, "Europe/Berlin", begin, begin + DAY)
    assert [datetime.fromtimestamp(tick / 1000, UTC).strftime("%H:%M") for tick in found] == expected


def test_next_tick_of_cron_and_interval() -> None:
    begin = moment("2026-05-01T12:00:30")
    assert next_tick(Schedule(cron="* * * * *"), 0)(begin) == begin + 30_000
    assert next_tick(Schedule(every=MINUTE), begin)(begin) == begin + MINUTE


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_valid_expression_has_no_error(expression: str) -> None:
    assert cron_error(expression) is None


@pytest.mark.parametrize(
    "expression", ["60 * * * *", "a b c d e", "0 0 31 2 *", "* * * *", "*/0 * * * *", ""]
)
def test_invalid_expression_has_error(expression: str) -> None:
    assert cron_error(expression)


@pytest.mark.parametrize(
    ("expression", "days"),
    [
        ("0 9 L * *", ["2026-11-30", "2026-12-31", "2027-01-31"]),
        ("0 9 LW * *", ["2026-11-30", "2026-12-31", "2027-01-29"]),
        ("0 9 * * 5L", ["2026-11-27", "2026-12-25", "2027-01-29"]),
        ("0 9 * * 1#2", ["2026-12-14", "2027-01-11", "2027-02-08"]),
        ("0 9 * * MON#2", ["2026-12-14", "2027-01-11", "2027-02-08"]),
        ("0 9 * jan mon", ["2027-01-04", "2027-01-11", "2027-01-18"]),
        ("0 9 * * 7", ["2026-11-22", "2026-11-29", "2026-12-06"]),
        ("0 9 1 * 1", ["2026-11-23", "2026-11-30", "2026-12-01"]),
    ],
)
def test_special_characters_select_days(expression: str, days: list[str]) -> None:
    following, tick = cron(expression, "UTC"), moment("2026-11-19T00:00:00", "UTC")
    found = []
    for _ in days:
        next_one = following(tick)
        assert next_one is not None
        tick = next_one
        found.append(datetime.fromtimestamp(tick / 1000, UTC).date().isoformat())
    assert found == days


@pytest.mark.parametrize(
    "expression",
    [
        "0 9 15W * *",
        "0 9 L-3 * *",
        "0 9 ? * *",
        "0 9 * * L",
        "0 9 * * FRIL",
        "0 9 * * 1#6",
        "H * * * *",
        "@daily",
    ],
)
def test_other_special_characters_are_refused(expression: str) -> None:
    assert cron_error(expression)
