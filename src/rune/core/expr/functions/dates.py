"""Functions on dates. A date is ISO 8601 text or seconds since 1970; results are in UTC, and so is a text without an
offset.

The strftime patterns are implemented here: those of the C library depend on the locale of the machine, and accept
field widths such as `%999999999d`.
"""

from __future__ import annotations

import calendar
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Any

from rune.core.expr.budget import (
    BLOCK,
    SHORT_TEXT,
    UNMETERED,
    Evaluation,
    ExpressionError,
    Meter,
    meter_of,
)
from rune.core.expr.functions.table import Table, number_of, text_of
from rune.core.expr.values import is_number, kind_name

DATES = Table("dates")
# Estimated nanoseconds for a directive of a pattern, or a character between two.
_DIRECTIVE_NS = 1_000

_SECONDS_PER_UNIT = {"second": 1, "minute": 60, "hour": 3600, "day": 86400, "week": 604800}
_MONTHS_PER_UNIT = {"month": 1, "year": 12}
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_MONTH_NAMES = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SHORTHANDS = {"F": "%Y-%m-%d", "T": "%H:%M:%S", "R": "%H:%M", "D": "%m/%d/%y"}

_WRITERS: dict[str, Callable[[datetime], str]] = {
    "Y": lambda m: f"{m.year:04}",
    "y": lambda m: f"{m.year % 100:02}",
    "m": lambda m: f"{m.month:02}",
    "d": lambda m: f"{m.day:02}",
    "e": lambda m: f"{m.day:2}",
    "H": lambda m: f"{m.hour:02}",
    "I": lambda m: f"{(m.hour - 1) % 12 + 1:02}",
    "M": lambda m: f"{m.minute:02}",
    "S": lambda m: f"{m.second:02}",
    "f": lambda m: f"{m.microsecond:06}",
    "p": lambda m: "AM" if m.hour < 12 else "PM",
    "j": lambda m: f"{m.timetuple().tm_yday:03}",
    "a": lambda m: _DAYS[m.weekday()][:3],
    "A": lambda m: _DAYS[m.weekday()],
    "b": lambda m: _MONTH_NAMES[m.month - 1][:3],
    "B": lambda m: _MONTH_NAMES[m.month - 1],
    "u": lambda m: str(m.isoweekday()),
    "w": lambda m: str(m.isoweekday() % 7),
    "G": lambda m: f"{m.isocalendar().year:04}",
    "V": lambda m: f"{m.isocalendar().week:02}",
    "s": lambda m: str((m - _EPOCH) // timedelta(seconds=1)),
    "z": lambda m: "+0000",
    "Z": lambda m: "UTC",
    "%": lambda m: "%",
}

# Directives that parse a number, with the maximum number of digits.
_WIDTHS = {"Y": 4, "y": 2, "m": 2, "d": 2, "e": 2, "H": 2, "I": 2, "M": 2, "S": 2, "f": 6, "s": 12}
_NAMES = {
    "a": [day[:3].lower() for day in _DAYS],
    "A": [day.lower() for day in _DAYS],
    "b": [month[:3].lower() for month in _MONTH_NAMES],
    "B": [month.lower() for month in _MONTH_NAMES],
    "p": ["am", "pm"],
    "Z": ["utc", "gmt", "z"],
}


def _directives(pattern: str, meter: Meter) -> Iterator[tuple[str, str]]:
    """Yield the (directive, "") and ("", literal) pairs of a pattern, with shorthands expanded."""
    at = charged = 0
    while at < len(pattern):
        if at >= charged:
            meter.charge(min(BLOCK, len(pattern) - at) * _DIRECTIVE_NS)
            charged += BLOCK
        letter = pattern[at + 1 : at + 2]
        if pattern[at] != "%":
            yield "", pattern[at]
            at += 1
        elif letter in _SHORTHANDS:
            yield from _directives(_SHORTHANDS[letter], meter)
            at += 2
        elif letter in _WRITERS:
            yield letter, ""
            at += 2
        else:
            known = " ".join(f"%{each}" for each in (*_WRITERS, *_SHORTHANDS))
            raise ExpressionError(f"the pattern has an unknown %{letter}; available: {known}")


def format_with(moment: datetime, pattern: str, meter: Meter = UNMETERED) -> str:
    """Format a date in UTC with a strftime pattern."""
    return "".join(literal or _WRITERS[letter](moment) for letter, literal in _directives(pattern, meter))


def parse_with(text: str, pattern: str, meter: Meter = UNMETERED, zone: tzinfo = UTC) -> datetime:
    """Parse a date with a strftime pattern. Without an offset it is in the time zone."""
    for _ in _directives(pattern, meter):
        # An unknown directive is an error even if the text does not fit before it.
        pass
    refused = ExpressionError(f'the date "{text[:40]}" does not fit "{pattern[:40]}"')
    fields: dict[str, int] = {}
    at = 0
    for letter, literal in _directives(pattern, meter):
        if letter in _WIDTHS:
            end = _digits_end(text, at, _WIDTHS[letter])
            if end == at:
                raise refused
            fields[letter] = int(text[at:end].ljust(6, "0") if letter == "f" else text[at:end])
        elif letter in _NAMES:
            end = _name_end(text, at, letter, fields)
        elif letter == "z":
            end = _offset_end(text, at, fields)
        elif letter and letter != "%":
            raise ExpressionError(f"a date cannot be read with %{letter}")
        else:
            end = at + 1 if text[at : at + 1] == (literal or "%") else -1
        if end < 0:
            raise refused
        at = end
    if at != len(text):
        raise refused
    try:
        return _assemble(fields, zone)
    except (ValueError, OverflowError):
        raise refused from None


def _digits_end(text: str, at: int, width: int) -> int:
    end = at
    while end < len(text) and end - at < width and text[end] in "0123456789":
        end += 1
    return end


def _name_end(text: str, at: int, letter: str, fields: dict[str, int]) -> int:
    for index, name in enumerate(_NAMES[letter]):
        if text[at : at + len(name)].lower() == name:
            fields[letter] = index
            return at + len(name)
    return -1


def _offset_end(text: str, at: int, fields: dict[str, int]) -> int:
    """Read `Z`, `+0200` or `+02:00` into minutes and return its end."""
    if text[at : at + 1] in ("Z", "z"):
        fields["z"] = 0
        return at + 1
    digits = text[at + 1 : at + 6].replace(":", "", 1)[:4]
    if text[at : at + 1] not in ("+", "-") or _digits_end(digits, 0, 4) != 4:
        return -1
    minutes = int(digits[:2]) * 60 + int(digits[2:])
    fields["z"] = minutes if text[at] == "+" else -minutes
    return at + (6 if text[at + 3 : at + 4] == ":" else 5)


def _assemble(fields: dict[str, int], zone: tzinfo) -> datetime:
    if "s" in fields:
        return _EPOCH + timedelta(seconds=fields["s"])
    year = fields.get("Y", 1900)
    if "y" in fields:
        year = fields["y"] + (2000 if fields["y"] < 69 else 1900)
    hour = fields.get("H", 0)
    if "I" in fields:
        hour = fields["I"] % 12 + 12 * fields.get("p", 0)
    if "z" in fields or "Z" in fields:  # `%Z` reads names of UTC only
        zone = timezone(timedelta(minutes=fields.get("z", 0)))
    return datetime(
        year,
        fields.get("m", fields.get("b", fields.get("B", 0)) + 1),
        fields.get("d", fields.get("e", 1)),
        hour,
        fields.get("M", 0),
        fields.get("S", 0),
        fields.get("f", 0),
        zone,
    ).astimezone(UTC)


def iso(moment: datetime) -> str:
    """Format a date with no, three or six decimals, as needed."""
    precision = "seconds" if not moment.microsecond else "milliseconds"
    if moment.microsecond % 1000:
        precision = "microseconds"
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec=precision) + "Z"


def moment_of(value: Any, name: str) -> datetime:
    """Return the date of an argument. Text without an offset is in UTC."""
    try:
        if is_number(value):
            return _EPOCH + timedelta(seconds=value)
        if type(value) is str:
            moment = datetime.fromisoformat(value.strip())
            return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise ExpressionError(f'{name}() cannot read the date "{str(value)[:40]}"') from None
    raise ExpressionError(f"{name}() takes a date as text or in seconds, not {kind_name(value)}")


def _moment(run: Evaluation, value: Any, name: str) -> datetime:
    if type(value) is str and len(value) > SHORT_TEXT:
        run.charge(len(value) << 2)
    return moment_of(value, name)


@DATES.add("now()", "The time of this attempt.", 'starts_with(now(), "20")', "true", pure=False)
def now(run: Evaluation, /) -> str:
    try:
        seconds = run.scope["@now"]
    except KeyError:
        raise ExpressionError("now() is not available here") from None
    moment = _EPOCH + timedelta(seconds=seconds)
    run.build(24)
    # Always three decimals, so that the texts sort by time.
    return moment.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


@DATES.add(
    "parse_date(text, pattern)",
    "A date from text: ISO 8601, or in the format of a strftime pattern.",
    'parse_date("31.12.2024", "%d.%m.%Y")',
    '"2024-12-31T00:00:00Z"',
)
def parse_date(run: Evaluation, text: Any, pattern: Any = None, /) -> str:
    run.build(27)
    if pattern is None:
        return iso(_moment(run, text, "parse_date"))
    run.scan(len(text_of(text, "parse_date")) + len(text_of(pattern, "parse_date")))
    return iso(parse_with(text, pattern, meter_of(run.scope)))


@DATES.add(
    "format_date(date, pattern)",
    "The date in the format of a strftime pattern, in UTC and in English.",
    'format_date("2024-12-31T10:00:00Z", "%d.%m.%Y %H:%M")',
    '"31.12.2024 10:00"',
)
def format_date(run: Evaluation, date: Any, pattern: Any, /) -> str:
    moment = _moment(run, date, "format_date")
    run.build(len(text_of(pattern, "format_date")))
    text = format_with(moment, pattern, meter_of(run.scope))
    run.build(len(text))
    return text


@DATES.add(
    "add_time(date, amount, unit)",
    "The date moved by seconds, minutes, hours, days, weeks, months or years.",
    'add_time("2024-02-28T00:00:00Z", 2, "days")',
    '"2024-03-01T00:00:00Z"',
)
def add_time(run: Evaluation, date: Any, amount: Any, unit: Any, /) -> str:
    moment = _moment(run, date, "add_time")
    count = number_of(amount, "add_time")
    name = text_of(unit, "add_time").removesuffix("s")
    run.build(27)
    try:
        if name in _SECONDS_PER_UNIT:
            return iso(moment + timedelta(seconds=count * _SECONDS_PER_UNIT[name]))
        if name in _MONTHS_PER_UNIT and type(count) is int:
            return iso(months_later(moment, count * _MONTHS_PER_UNIT[name]))
    except (ValueError, OverflowError):
        raise ExpressionError("add_time() leaves the years 1 to 9999") from None
    if name in _MONTHS_PER_UNIT:
        raise ExpressionError(f"add_time() takes a whole number of {name}s")
    known = ", ".join(f"{each}s" for each in (*_SECONDS_PER_UNIT, *_MONTHS_PER_UNIT))
    raise ExpressionError(f'add_time() has no unit "{unit[:40]}"; available: {known}')


def months_later(moment: datetime, months: int) -> datetime:
    """Return the same day in a later month, or the last day of a shorter month."""
    year, month = divmod(moment.year * 12 + moment.month - 1 + months, 12)
    if not 1 <= year <= 9999:
        raise OverflowError
    day = min(moment.day, calendar.monthrange(year, month + 1)[1])
    return moment.replace(year=year, month=month + 1, day=day)
