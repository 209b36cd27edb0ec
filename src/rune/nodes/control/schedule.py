"""`schedule`: the clock starts an execution."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from msgspec import Meta

from rune.core.outcome import Outcome, Output
from rune.core.problem import Problem
from rune.nodes.base import Call
from rune.nodes.declare import Model, declare
from rune.nodes.rules import Unit, conflicting, missing


class Parameters(Model, kw_only=True, frozen=True):
    """When to start: a cron expression, or every so often."""

    cron: Annotated[str | None, Meta(description="Five cron fields: minute hour day month weekday.")] = None
    timezone: Annotated[str, Meta(description="IANA time zone in which `cron` is read.")] = "UTC"
    amount: Annotated[Annotated[int, Meta(ge=1)] | None, Meta(description="Every so many units.")] = None
    unit: Annotated[Unit, Meta(description="Unit of `amount`.")] = "minutes"
    catch_up: Annotated[
        bool, Meta(description="Start once for each time missed while nothing was running.")
    ] = False
    overlap: Annotated[
        Literal["skip", "queue", "allow"],
        Meta(
            description="What happens when the execution before still runs: leave this one out, wait, or "
            "start."
        ),
    ] = "skip"


def _combined(parameters: Mapping[str, Any]) -> list[Problem]:
    found: list[Problem] = []
    cron, amount = parameters.get("cron"), parameters.get("amount")
    if cron is None and amount is None:
        found.append(
            missing("cron", "neither `cron` nor `amount` is given", "give `cron`, or `amount` and `unit`")
        )
    if cron is not None and amount is not None:
        found.append(conflicting("amount", "`cron` and `amount` are both given", "give one of them"))
    if cron is not None and len(cron.split()) != 5:
        found.append(
            conflicting("cron", f"`{cron}` does not have five fields", "for example `*/15 9-17 * * 1-5`")
        )
    zone = parameters.get("timezone", "UTC")
    try:
        ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        found.append(conflicting("timezone", f"no time zone `{zone}`", "for example `Europe/Berlin`"))
    return found


TYPE = declare(
    "schedule",
    Parameters,
    kinds=dict.fromkeys(("cron", "timezone", "amount", "unit", "catch_up", "overlap"), "literal"),
    extra=_combined,
    summary="Starts an execution at set times.",
    doc="Times follow a cron expression in a time zone, or a fixed interval.",
    output="`{scheduled_at}`, the time it was due.",
    trigger=True,
)


def run(call: Call[Parameters]) -> Outcome:
    """The start payload, as it came."""
    return Output(call.payload)
