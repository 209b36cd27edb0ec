"""The `datetime` node: parses, shifts and formats dates."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from msgspec import UNSET, Meta, UnsetType

from rune.core.definition.problems import Problem
from rune.core.execution.outcome import Outcome, Output
from rune.core.expr import ExpressionError, Meter, to_text
from rune.core.expr.budget import UNMETERED
from rune.core.expr.functions.dates import format_with, months_later, parse_with
from rune.errors import NodeFailure
from rune.nodes.base import NodeCall
from rune.nodes.schema import Model, conflicting, declare, missing
from rune.nodes.values import time_zone


class Parameters(Model, kw_only=True, frozen=True):
    """The operation and the date it applies to."""

    operation: Annotated[
        Literal["now", "add", "subtract", "format", "parse"], Meta(description="Operation.")
    ] = "now"
    date: Annotated[
        str | int | float | UnsetType, Meta(description="ISO 8601 text, or seconds since 1970. Default: now.")
    ] = UNSET
    amount: Annotated[float | None, Meta(description="Number of units to add or subtract.")] = None
    unit: Annotated[
        Literal["seconds", "minutes", "hours", "days", "weeks", "months", "years"],
        Meta(description="Unit of `amount`. From days on the time of day in `timezone` stays the same."),
    ] = "days"
    timezone: Annotated[
        str,
        Meta(min_length=1, description="IANA time zone of the result, and of a `date` without an offset."),
    ] = "UTC"
    format: Annotated[
        str | None,
        Meta(
            description="strftime pattern of `date` for `parse`, of the result otherwise. Default: ISO 8601."
        ),
    ] = None


def _combined(parameters: Mapping[str, Any]) -> list[Problem]:
    operation = parameters.get("operation", "now")
    if operation in {"add", "subtract"} and parameters.get("amount") is None:
        return [
            missing("amount", f"`{operation}` needs `amount`", "for example `amount: 2` with `unit: days`")
        ]
    amount = parameters.get("amount")
    if (
        operation in {"add", "subtract"}
        and isinstance(amount, float)
        and not _fits(amount, parameters.get("unit"))
    ):
        whole = _WHOLE.format(parameters["unit"])
        return [conflicting("amount", whole, "move the date by days in a further node")]
    if operation == "parse" and parameters.get("date") is None:
        return [missing("date", "`parse` needs `date`", "give the text to parse")]
    return []


TYPE = declare(
    "datetime",
    Parameters,
    kinds={"operation": "literal"},
    extra=_combined,
    summary="Works with dates.",
    doc="Parses, shifts and formats dates in a time zone.",
    output="`{result, iso, unix, timezone}`.",
    errors={
        "BAD_DATE": "`date` cannot be parsed, or the result is outside the years 1 to 9999",
        "BAD_PARAMETER": "`amount` is missing, or no whole number of months or years",
        "BAD_TIMEZONE": "the time zone does not exist",
        "BAD_FORMAT": "`format` is not valid",
    },
    permanent=frozenset({"BAD_DATE", "BAD_TIMEZONE", "BAD_FORMAT"}),
)


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAYS = {"days": 1, "weeks": 7}
_MONTHS = {"months": 1, "years": 12}
_WHOLE = "a whole number of {} expected"


def run(call: NodeCall[Parameters]) -> Outcome:
    """Return the resulting date as text, in ISO 8601 and in seconds since 1970."""
    parameters = call.parameters
    zone = _zone(parameters.timezone)
    try:
        moment = _shift(_date(parameters, zone, call.now, call.meter).astimezone(zone), parameters)
    except OverflowError:
        raise NodeFailure("the date is outside the years 1 to 9999", code="BAD_DATE") from None
    iso = _iso(moment)
    # For `parse` the pattern describes `date`, not the result.
    pattern = None if parameters.operation == "parse" else parameters.format
    return Output(
        {
            "result": iso if pattern is None else _format(moment, pattern, call.meter),
            "iso": iso,
            "unix": (moment - _EPOCH) // timedelta(seconds=1),
            "timezone": parameters.timezone,
        }
    )


def _zone(name: str) -> ZoneInfo:
    try:
        return time_zone(name)
    except ZoneInfoNotFoundError:
        message = f"parameters.timezone: no time zone `{name[:60]}`, for example `Europe/Berlin`"
        raise NodeFailure(message, code="BAD_TIMEZONE") from None


def _date(parameters: Parameters, zone: ZoneInfo, now: int, meter: Meter) -> datetime:
    """Return the date to work on: now only if none is given. Text without an offset is in the time zone."""
    date = parameters.date
    if parameters.operation == "now" or isinstance(date, UnsetType):
        return _EPOCH + timedelta(milliseconds=now)
    if parameters.operation == "parse" and parameters.format is not None:
        return _parse(to_text(date), parameters.format, zone, meter)
    try:
        if not isinstance(date, str):
            return _EPOCH + timedelta(seconds=date)
        moment = datetime.fromisoformat(date.strip())
    except (ValueError, OverflowError):
        expected = "not an ISO 8601 date" if isinstance(date, str) else "not a date in seconds since 1970"
        raise NodeFailure(f"parameters.date: `{str(date)[:60]}` is {expected}", code="BAD_DATE") from None
    return moment if moment.tzinfo else moment.replace(tzinfo=zone)


def _parse(text: str, pattern: str, zone: ZoneInfo, meter: Meter) -> datetime:
    _format(_EPOCH, pattern, meter)
    try:
        return parse_with(text, pattern, meter, zone)
    except ExpressionError as error:
        raise NodeFailure(f"parameters.date: {error.message}", code="BAD_DATE") from None


def _shift(moment: datetime, parameters: Parameters) -> datetime:
    if parameters.operation not in {"add", "subtract"}:
        return moment
    if parameters.amount is None:
        raise NodeFailure("parameters.amount: a number expected, found null", code="BAD_PARAMETER")
    amount = parameters.amount if parameters.operation == "add" else -parameters.amount
    unit = parameters.unit
    if not _fits(amount, unit):
        raise NodeFailure(f"parameters.amount: {_WHOLE.format(unit)}", code="BAD_PARAMETER")
    if unit in _MONTHS:
        return _at_local_time(moment, months_later(moment, int(amount) * _MONTHS[unit]))
    if unit in _DAYS:
        days = amount * _DAYS[unit]
        moment = _at_local_time(moment, moment + timedelta(days=int(days)))
        span = timedelta(days=days - int(days))
    else:
        span = timedelta(**{unit: amount})
    return (moment.astimezone(UTC) + span).astimezone(moment.tzinfo)


def _fits(amount: float, unit: object) -> bool:
    return unit not in _MONTHS or float(amount).is_integer()


def _at_local_time(before: datetime, shifted: datetime) -> datetime:
    """Return a moment whose local time was shifted. A time that a change of the clocks leaves out is moved on by what
    is left out; of one that occurs twice it is the first, or the second if that of `before` was."""
    again = shifted.replace(fold=before.fold)
    exists = again.astimezone(UTC).astimezone(before.tzinfo).replace(tzinfo=None) == again.replace(
        tzinfo=None
    )
    moment = again if exists else again.replace(fold=0)
    return moment.astimezone(UTC).astimezone(before.tzinfo)


def _iso(moment: datetime) -> str:
    # Same notation as dates in expressions: only as many decimals as needed, and `Z` for UTC.
    precision = "milliseconds" if moment.microsecond else "seconds"
    if moment.microsecond % 1000:
        precision = "microseconds"
    text = moment.isoformat(timespec=precision)
    return text.removesuffix("+00:00") + "Z" if moment.tzinfo == ZoneInfo("UTC") else text


def _format(moment: datetime, pattern: str, meter: Meter = UNMETERED) -> str:
    # `format_with` supports UTC only, so the zone directives are replaced before the call.
    parts = [
        part.replace("%z", moment.strftime("%z")).replace("%Z", moment.tzname() or "")
        for part in pattern.split("%%")
    ]
    try:
        return format_with(moment, "%%".join(parts), meter)
    except ExpressionError as error:
        raise NodeFailure(f"parameters.format: {error.message}", code="BAD_FORMAT") from None
