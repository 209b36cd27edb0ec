"""Functions on dates. A date is ISO 8601 text, or seconds since 1970; what comes out is in UTC."""

from __future__ import annotations

import calendar
from datetime import UTC, datetime, timedelta
from typing import Any

from rune.core.expr.budget import Run
from rune.core.expr.errors import ExpressionError
from rune.core.expr.functions.dateformat import format_with, parse_with
from rune.core.expr.functions.table import Table, number_of, text_of
from rune.core.expr.values import is_number, spoken

DATES = Table("dates")

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECONDS = {"second": 1, "minute": 60, "hour": 3600, "day": 86400, "week": 604800}
_MONTHS = {"month": 1, "year": 12}


def iso(moment: datetime) -> str:
    """A date as text, with as many decimals as it has: none, three or six."""
    precision = "seconds" if not moment.microsecond else "milliseconds"
    if moment.microsecond % 1000:
        precision = "microseconds"
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec=precision) + "Z"


def moment_of(value: Any, name: str) -> datetime:
    """The date an argument means. Text without an offset is in UTC."""
    try:
        if is_number(value):
            return _EPOCH + timedelta(seconds=value)
        if type(value) is str:
            moment = datetime.fromisoformat(value.strip())
            return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise ExpressionError(f'{name}() cannot read the date "{str(value)[:40]}"') from None
    raise ExpressionError(f"{name}() takes a date as text or in seconds, not {spoken(value)}")


@DATES.add("now()", "The time of this attempt.", 'starts_with(now(), "20")', "true", pure=False)
def now(run: Run, /) -> str:
    try:
        seconds = run.scope["@now"]
    except KeyError:
        raise ExpressionError("now() is not available here") from None
    moment = _EPOCH + timedelta(seconds=seconds)
    run.build(24)
    # Always three decimals, so that such texts order as their times do.
    return moment.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


@DATES.add(
    "parse_date(text, pattern)",
    "A date from text: ISO 8601, or as the strftime pattern says.",
    'parse_date("31.12.2024", "%d.%m.%Y")',
    '"2024-12-31T00:00:00Z"',
)
def parse_date(run: Run, text: Any, pattern: Any = None, /) -> str:
    run.build(27)
    if pattern is None:
        return iso(moment_of(text, "parse_date"))
    run.scan(len(text_of(text, "parse_date")) + len(text_of(pattern, "parse_date")))
    return iso(parse_with(text, pattern))


@DATES.add(
    "format_date(date, pattern)",
    "The date as the strftime pattern says, in UTC and in English.",
    'format_date("2024-12-31T10:00:00Z", "%d.%m.%Y %H:%M")',
    '"31.12.2024 10:00"',
)
def format_date(run: Run, date: Any, pattern: Any, /) -> str:
    moment = moment_of(date, "format_date")
    run.build(len(text_of(pattern, "format_date")))
    text = format_with(moment, pattern)
    run.build(len(text))
    return text


@DATES.add(
    "add_time(date, amount, unit)",
    "The date moved by seconds, minutes, hours, days, weeks, months or years.",
    'add_time("2024-02-28T00:00:00Z", 2, "days")',
    '"2024-03-01T00:00:00Z"',
)
def add_time(run: Run, date: Any, amount: Any, unit: Any, /) -> str:
    moment = moment_of(date, "add_time")
    count = number_of(amount, "add_time")
    name = text_of(unit, "add_time").removesuffix("s")
    run.build(27)
    try:
        if name in _SECONDS:
            return iso(moment + timedelta(seconds=count * _SECONDS[name]))
        if name in _MONTHS and type(count) is int:
            return iso(_months_later(moment, count * _MONTHS[name]))
    except (ValueError, OverflowError):
        raise ExpressionError("add_time() leaves the years 1 to 9999") from None
    if name in _MONTHS:
        raise ExpressionError(f"add_time() takes a whole number of {name}s")
    known = ", ".join(f"{each}s" for each in (*_SECONDS, *_MONTHS))
    raise ExpressionError(f'add_time() knows no unit "{unit[:40]}"; there is: {known}')


def _months_later(moment: datetime, months: int) -> datetime:
    """The same day some months on, or the last day of a month too short for it."""
    year, month = divmod(moment.year * 12 + moment.month - 1 + months, 12)
    if not 1 <= year <= 9999:
        raise OverflowError
    day = min(moment.day, calendar.monthrange(year, month + 1)[1])
    return moment.replace(year=year, month=month + 1, day=day)
