"""The `wait` node: waits for a duration, a date or a signal."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal

from msgspec import Meta
from msgspec.structs import replace

from rune.core.definition import problems
from rune.core.definition.problems import Problem
from rune.core.execution.outcome import Outcome, Output, Suspend
from rune.core.execution.retry import SIGNAL_MISMATCH
from rune.core.expr.budget import METER
from rune.documents.json_schema import check_schema
from rune.documents.signal_form import check_signal_value
from rune.errors import NodeFailure
from rune.nodes.base import NodeCall
from rune.nodes.schema import Model, Unit, declare, missing


class Parameters(Model, kw_only=True, frozen=True):
    """What to wait for."""

    resume: Annotated[
        Literal["time_interval", "date_time", "signal"],
        Meta(description="Resume after a duration, at a date, or on a signal."),
    ] = "time_interval"
    amount: Annotated[float, Meta(ge=0, description="Duration in units; fractions are allowed.")] = 1
    unit: Annotated[Unit, Meta(description="Unit of `amount`.")] = "seconds"
    date_time: Annotated[
        str | None, Meta(description="ISO 8601 date to wait for; a past date resumes immediately.")
    ] = None
    name: Annotated[
        Annotated[str, Meta(min_length=1)] | None,
        Meta(description="Name of the signal. Default: the node's id."),
    ] = None
    title: Annotated[str | None, Meta(description="With a signal: what is asked, in one line.")] = None
    description: Annotated[str | None, Meta(description="With a signal: what is asked, in full.")] = None
    schema: Annotated[
        dict[str, Any] | None,
        Meta(description="With a signal: JSON Schema of its value, for the form and the check."),
    ] = None
    choices: Annotated[
        list[Annotated[str, Meta(min_length=1)]] | None,
        Meta(description="With a signal: possible decisions. The value is an object with one as `choice`."),
    ] = None


EXAMPLE = "for example `2030-01-31T09:00:00Z`"


def _combined(parameters: Mapping[str, Any]) -> list[Problem]:
    if parameters.get("resume") == "signal":
        return _form(parameters)
    if parameters.get("resume") != "date_time":
        return []
    text = parameters.get("date_time")
    if text is None:
        return [missing("date_time", "`resume: date_time` needs `date_time`", EXAMPLE)]
    is_literal = isinstance(text, str) and "$" not in text and "{{" not in text
    if is_literal and _moment(text) is None:
        message = f"`{text[:60]}` is not an ISO 8601 date"
        return [Problem("date_time", problems.BAD_PARAMETER, message, EXAMPLE)]
    return []


def _form(parameters: Mapping[str, Any]) -> list[Problem]:
    """Return the problems of the schema of a signal."""
    schema = parameters.get("schema")
    if not isinstance(schema, dict):
        return []
    return [replace(each, path=each.path.replace("inputs", "schema", 1)) for each in check_schema(schema)]


def _waits_for_time(parameters: Mapping[str, Any]) -> bool:
    return parameters.get("resume") != "signal"


def _signals(node: str, parameters: Mapping[str, Any]) -> tuple[str, ...] | None:
    if parameters.get("resume") != "signal":
        return ()
    name = parameters.get("name") or node
    return None if "$" in name or "{{" in name else (name,)


TYPE = declare(
    "wait",
    Parameters,
    kinds=dict.fromkeys(("resume", "schema", "choices"), "literal"),
    extra=_combined,
    summary="Waits for a duration, a date or a signal.",
    doc="Occupies no slot while it waits and survives restarts. After a duration or a date the payload passes "
    "through; a signal replaces it with its own payload.",
    output="`{resume_at, timer_id}`, or the signal's payload.",
    errors={
        "EXPRESSION_ERROR": "a parameter cannot be evaluated",
        "BAD_PARAMETER": "the date or amount is not valid",
        "LIMIT_EXCEEDED": "the wait is longer than a century",
        SIGNAL_MISMATCH: "the value of the signal is none of `choices` or violates `schema`; the node waits again",
    },
    suspends=True,
    signals=_signals,
    passes_payload=_waits_for_time,
    waits_for_time=_waits_for_time,
)


_MS: Mapping[Unit, int] = {"seconds": 1_000, "minutes": 60_000, "hours": 3_600_000, "days": 86_400_000}
_CENTURY_MS = 36_525 * 86_400_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def run(call: NodeCall[Parameters]) -> Outcome:
    """Suspend on the first run; return what ended the wait when resumed."""
    parameters = call.parameters
    if parameters.resume == "signal":
        name = parameters.name or call.node
        if not call.resumed:
            return Suspend(signal=name)
        problems = check_signal_value(
            {"schema": parameters.schema, "choices": parameters.choices}, call.signal, call.scope.get(METER)
        )
        if problems:
            found = "; ".join(f"{each.path}: {each.message}" for each in problems)
            raise NodeFailure(
                f"the value of the signal `{name}` is not accepted: {found}", code=SIGNAL_MISMATCH
            )
        return Output(call.signal)
    if call.resumed:
        return Output({"resume_at": call.now if call.due is None else call.due, "timer_id": call.timer_id})
    due = _date(parameters) if parameters.resume == "date_time" else call.now + _interval(parameters)
    if due - call.now > _CENTURY_MS:
        raise NodeFailure("the wait is longer than a century", code="LIMIT_EXCEEDED")
    return Suspend(until=due)


def _interval(parameters: Parameters) -> int:
    # Bound the amount before multiplying, so that a huge float cannot overflow the conversion to whole milliseconds.
    return round(min(parameters.amount, 2 * _CENTURY_MS) * _MS[parameters.unit])


def _date(parameters: Parameters) -> int:
    text = parameters.date_time or ""
    found = _moment(text)
    if found is None:
        message = f"parameters.date_time: `{text[:60]}` is not an ISO 8601 date"
        raise NodeFailure(message, code="BAD_PARAMETER")
    return found


def _moment(text: str) -> int | None:
    """Return a date in epoch ms, or None if the text is not one."""
    try:
        moment = datetime.fromisoformat(text.strip())
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return (moment - _EPOCH) // timedelta(milliseconds=1)
    except (ValueError, OverflowError):
        return None
