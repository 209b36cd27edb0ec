"""The `datetime` node."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.nodes.runner import NOW, error, output, run

LEAP = "2024-02-28T00:00:00Z"


def test_now_is_time_of_run() -> None:
    assert output(run("datetime")) == {
        "result": "2023-11-14T22:13:20Z",
        "iso": "2023-11-14T22:13:20Z",
        "unix": NOW // 1000,
        "timezone": "UTC",
    }


@pytest.mark.parametrize(
    ("operation", "date", "amount", "unit", "unix"),
    [
        ("add", LEAP, 2, "days", 1709251200),
        ("subtract", "2024-03-01T06:00:00+02:00", 5, "hours", 1709247600),
        ("add", LEAP, -1, "weeks", 1708473600),
        ("add", LEAP, 0.5, "minutes", 1709078430),
        ("add", LEAP, 1.5, "seconds", 1709078401),
        ("subtract", 1709251200, 2, "days", 1709078400),
    ],
)
def test_add_and_subtract_shift_date(operation: str, date: Any, amount: float, unit: str, unix: int) -> None:
    parameters = {"operation": operation, "date": "$trigger", "amount": amount, "unit": unit}
    assert output(run("datetime", parameters, trigger=date))["unix"] == unix


def test_add_without_date_starts_now() -> None:
    parameters = {"operation": "add", "amount": 1, "unit": "days"}
    assert output(run("datetime", parameters))["unix"] == NOW // 1000 + 86_400


@pytest.mark.parametrize(
    ("date", "unix"), [(0, 0), (1709251200, 1709251200), (1709251200.75, 1709251200), (-1, -1)]
)
def test_h_h5_number_is_unix_time(date: float, unix: int) -> None:
    # Red if only text is parsed as a date and other values fall back to now.
    parameters = {"operation": "format", "date": "$trigger"}
    assert output(run("datetime", parameters, trigger=date))["unix"] == unix


@pytest.mark.parametrize("date", [None, True, [], {}])
def test_h_h5_invalid_date_fails(date: Any) -> None:
    # Red if null is treated as a missing date.
    found = error(run("datetime", {"operation": "format", "date": "$trigger"}, trigger=date))
    assert found.code == "BAD_PARAMETER"
    assert "parameters.date" in found.message


@pytest.mark.parametrize(
    ("zone", "iso"),
    [
        ("UTC", "2024-07-01T12:00:00Z"),
        ("Europe/Berlin", "2024-07-01T14:00:00+02:00"),
        ("Asia/Kolkata", "2024-07-01T17:30:00+05:30"),
    ],
)
def test_result_is_in_time_zone(zone: str, iso: str) -> None:
    parameters = {"operation": "format", "date": "2024-07-01T12:00:00Z", "timezone": zone}
    found = output(run("datetime", parameters))
    assert (found["iso"], found["result"], found["timezone"]) == (iso, iso, zone)
    assert found["unix"] == 1719835200


@pytest.mark.parametrize(
    ("date", "pattern", "iso"),
    [
        ("31.12.2026 23:30", "%d.%m.%Y %H:%M", "2026-12-31T23:30:00-05:00"),
        ("2026-12-31T23:30", None, "2026-12-31T23:30:00-05:00"),
        ("2026-07-01", None, "2026-07-01T00:00:00-04:00"),
        ("2026-12-31 23:30 +0100", "%Y-%m-%d %H:%M %z", "2026-12-31T17:30:00-05:00"),
        ("2026-12-31 23:30 Z", "%Y-%m-%d %H:%M %z", "2026-12-31T18:30:00-05:00"),
        ("2026-12-31 23:30 UTC", "%Y-%m-%d %H:%M %Z", "2026-12-31T18:30:00-05:00"),
        ("2026-12-31T23:30:00Z", None, "2026-12-31T18:30:00-05:00"),
        ("1798759800", "%s", "2026-12-31T18:30:00-05:00"),
        (1798759800, None, "2026-12-31T18:30:00-05:00"),
    ],
)
@pytest.mark.parametrize("operation", ["parse", "format", "add"])
def test_text_without_offset_is_in_the_time_zone(
    operation: str, date: Any, pattern: str | None, iso: str
) -> None:
    parameters: dict[str, Any] = {"operation": operation, "date": date, "timezone": "America/New_York"}
    if operation == "parse" and pattern is not None:
        parameters["format"] = pattern
    elif pattern is not None:
        return  # only `parse` reads a date by a pattern
    if operation == "add":
        parameters |= {"amount": 0}
    assert output(run("datetime", parameters))["iso"] == iso


@pytest.mark.parametrize(
    ("date", "amount", "unit", "iso"),
    [
        ("2026-10-24T12:00:00", 1, "days", "2026-10-25T12:00:00+01:00"),
        ("2026-10-24T12:00:00", 24, "hours", "2026-10-25T11:00:00+01:00"),
        ("2026-03-28T12:00:00+01:00", 1, "days", "2026-03-29T12:00:00+02:00"),
        ("2026-03-28T12:00:00+01:00", 1, "weeks", "2026-04-04T12:00:00+02:00"),
        ("2026-03-28T12:00:00", 1.5, "days", "2026-03-30T00:00:00+02:00"),
        ("2026-10-25T12:00:00", -1, "days", "2026-10-24T12:00:00+02:00"),
        # A time that the change leaves out is an hour later; one that occurs twice is the first.
        ("2026-03-28T02:30:00", 1, "days", "2026-03-29T03:30:00+02:00"),
        ("2026-10-24T02:30:00", 1, "days", "2026-10-25T02:30:00+02:00"),
        ("2026-10-25T02:30:00+01:00", 0, "days", "2026-10-25T02:30:00+01:00"),
        ("2026-01-31T10:00:00", 1, "months", "2026-02-28T10:00:00+01:00"),
        ("2026-01-31T10:00:00", 6, "months", "2026-07-31T10:00:00+02:00"),
        ("2024-02-29T10:00:00", 1, "years", "2025-02-28T10:00:00+01:00"),
        ("2026-03-31T10:00:00", -1, "months", "2026-02-28T10:00:00+01:00"),
    ],
)
def test_days_and_longer_units_keep_the_time_of_day(date: str, amount: float, unit: str, iso: str) -> None:
    zone = {"timezone": "Europe/Berlin"}
    parameters = {"operation": "add", "date": date, "amount": amount, "unit": unit, **zone}
    assert output(run("datetime", parameters))["iso"] == iso
    backward = {**parameters, "operation": "subtract", "amount": -amount}
    assert output(run("datetime", backward))["iso"] == iso


UNITS = st.sampled_from(["seconds", "minutes", "hours", "days", "weeks", "months", "years"])


@given(st.integers(-600_000_000, 5_600_000_000), st.integers(-500, 500), UNITS)
def test_node_and_add_time_agree_in_utc(date: int, amount: int, unit: str) -> None:
    text = datetime.fromtimestamp(date, UTC).replace(tzinfo=None).isoformat()
    shifted = f'{{{{ add_time("{text}", {amount}, "{unit}") }}}}'
    parameters = {"operation": "add", "date": text, "amount": amount, "unit": unit, "format": "%Y"}
    agreed = run("datetime", {"operation": "format", "date": shifted})
    assert output(run("datetime", parameters))["iso"] == output(agreed)["iso"]


@given(
    st.integers(-1_000_000_000, 3_000_000_000),
    UNITS,
    st.sampled_from(["UTC", "Europe/Berlin", "Asia/Kolkata"]),
)
def test_adding_nothing_changes_nothing(date: int, unit: str, zone: str) -> None:
    parameters = {"operation": "add", "date": date, "amount": 0, "unit": unit, "timezone": zone}
    assert output(run("datetime", parameters))["unix"] == date


@pytest.mark.parametrize(
    ("pattern", "zone", "expected"),
    [
        ("%d.%m.%Y %H:%M", "UTC", "01.07.2024 12:05"),
        ("%d.%m.%Y %H:%M", "Europe/Berlin", "01.07.2024 14:05"),
        ("%H:%M %z (%Z) 100%%z", "Europe/Berlin", "14:05 +0200 (CEST) 100%z"),
        ("%A, %e %B", "UTC", "Monday,  1 July"),
        ("%s", "Europe/Berlin", "1719835500"),
        ("", "UTC", ""),
    ],
)
def test_format_pattern_sets_result(pattern: str, zone: str, expected: str) -> None:
    parameters = {"operation": "format", "date": "2024-07-01T12:05:00Z", "format": pattern, "timezone": zone}
    found = output(run("datetime", parameters))
    assert found["result"] == expected
    assert found["unix"] == 1719835500


@pytest.mark.parametrize(
    ("date", "pattern", "iso"),
    [
        ("31.12.2024", "%d.%m.%Y", "2024-12-31T00:00:00Z"),
        ("2024-12-31 10:00 +0200", "%Y-%m-%d %H:%M %z", "2024-12-31T08:00:00Z"),
        (20241231, "%Y%m%d", "2024-12-31T00:00:00Z"),
        ("2024-12-31T10:00:00.5+01:00", None, "2024-12-31T09:00:00.500Z"),
        ("2024-12-31", None, "2024-12-31T00:00:00Z"),
        (1735603200, None, "2024-12-31T00:00:00Z"),
    ],
)
def test_parse_reads_date(date: Any, pattern: str | None, iso: str) -> None:
    parameters: dict[str, Any] = {"operation": "parse", "date": "$trigger"}
    if pattern is not None:
        parameters["format"] = pattern
    found = output(run("datetime", parameters, trigger=date))
    assert (found["iso"], found["result"]) == (iso, iso)


@pytest.mark.parametrize(
    ("parameters", "code"),
    [
        ({"operation": "parse", "date": "yesterday"}, "BAD_DATE"),
        ({"operation": "parse", "date": ""}, "BAD_DATE"),
        ({"operation": "parse", "date": "32.12.2024", "format": "%d.%m.%Y"}, "BAD_DATE"),
        ({"operation": "format", "date": 1e18}, "BAD_DATE"),
        ({"operation": "format", "date": 1709251200000}, "BAD_DATE"),
        ({"operation": "add", "date": LEAP, "amount": 1e300}, "BAD_DATE"),
        ({"operation": "add", "date": LEAP, "amount": 9_000_000}, "BAD_DATE"),
        ({"operation": "add", "date": LEAP, "amount": "$trigger"}, "BAD_PARAMETER"),
        ({"operation": "add", "date": LEAP, "amount": "{{ 1 / 2 }}", "unit": "months"}, "BAD_PARAMETER"),
        ({"operation": "add", "date": LEAP, "amount": 1e300, "unit": "years"}, "BAD_DATE"),
        ({"operation": "add", "date": LEAP, "amount": 1e300, "unit": "hours"}, "BAD_DATE"),
        ({"operation": "now", "timezone": "Mars/Olympus"}, "BAD_TIMEZONE"),
        ({"operation": "now", "timezone": "../etc/passwd"}, "BAD_TIMEZONE"),
        ({"operation": "now", "timezone": "Europe"}, "BAD_TIMEZONE"),
        ({"operation": "format", "date": LEAP, "format": "%Q"}, "BAD_FORMAT"),
        ({"operation": "parse", "date": "x", "format": "%Q"}, "BAD_FORMAT"),
        ({"operation": "format", "date": "0001-01-01T00:00:00Z", "timezone": "America/New_York"}, "BAD_DATE"),
    ],
)
def test_invalid_parameters_fail_with_code(parameters: dict[str, Any], code: str) -> None:
    assert error(run("datetime", parameters, trigger=None)).code == code


@given(
    st.integers(-60_000_000_000, 250_000_000_000),
    st.integers(-10_000, 10_000),
    st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata"]),
)
def test_add_then_subtract_restores_date(date: int, amount: int, zone: str) -> None:
    forward = {"operation": "add", "date": date, "amount": amount, "unit": "hours", "timezone": zone}
    moved = output(run("datetime", forward))
    assert moved["unix"] == date + amount * 3600
    backward = {**forward, "operation": "subtract", "date": moved["iso"]}
    assert output(run("datetime", backward))["unix"] == date
