"""`schedule`: the clock starts an execution."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec
from msgspec import Meta

from rune.core.definition.problems import Problem
from rune.core.execution.outcome import Outcome, Output
from rune.core.triggers import CatchUp, Schedule
from rune.nodes.base import NodeCall
from rune.nodes.cron import cron_error
from rune.nodes.schema import Model, Unit, conflicting, declare, missing

_MS: dict[Unit, int] = {"seconds": 1_000, "minutes": 60_000, "hours": 3_600_000, "days": 86_400_000}


class Parameters(Model, kw_only=True, frozen=True):
    """When to start: a cron expression, or every so often."""

    cron: Annotated[str | None, Meta(description="Five cron fields: minute hour day month weekday.")] = None
    timezone: Annotated[str, Meta(description="IANA time zone in which `cron` is read.")] = "UTC"
    amount: Annotated[
        Annotated[int, Meta(ge=1, le=1_000_000)] | None, Meta(description="Every so many units.")
    ] = None
    unit: Annotated[Unit, Meta(description="Unit of `amount`.")] = "minutes"
    catch_up: Annotated[
        bool | Literal["none", "latest", "all"],
        Meta(
            description="Which of the times that were missed while nothing was running are made up for: none, "
            "the latest, or all of them up to `catch_up_limit`. `true` is `all`, `false` is `none`."
        ),
    ] = False
    catch_up_limit: Annotated[
        Annotated[int, Meta(ge=1, le=100)],
        Meta(description="How many of the times that were missed `all` makes up for, the latest ones."),
    ] = 100
    overlap: Annotated[
        Literal["skip", "queue", "allow", "cancel"],
        Meta(
            description="What happens when the execution before still runs: leave this one out, wait, "
            "start beside it, or cancel it and start."
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
    if cron is not None:
        found += _cron(cron)
    zone = parameters.get("timezone", "UTC")
    try:
        ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        found.append(conflicting("timezone", f"no time zone `{zone}`", "for example `Europe/Berlin`"))
    return found


def _cron(cron: str) -> list[Problem]:
    hint = "for example `*/15 9-17 * * 1-5`"
    if len(cron.split()) != 5:
        return [conflicting("cron", f"`{cron}` does not have five fields", hint)]
    flaw = cron_error(cron)
    return [] if flaw is None else [conflicting("cron", f"`{cron}`: {flaw}", hint)]


def _starts(parameters: Mapping[str, Any]) -> Schedule:
    given = msgspec.convert(parameters, Parameters)
    catch_up: CatchUp = given.catch_up if isinstance(given.catch_up, str) else _said(given.catch_up)
    return Schedule(
        cron=given.cron,
        timezone=given.timezone,
        every=(given.amount or 0) * _MS[given.unit],
        catch_up=catch_up,
        limit=given.catch_up_limit,
        overlap=given.overlap,
    )


def _said(catch_up: bool) -> CatchUp:
    return "all" if catch_up else "none"


TYPE = declare(
    "schedule",
    Parameters,
    kinds=dict.fromkeys(Parameters.__struct_fields__, "literal"),
    extra=_combined,
    summary="Starts an execution at set times.",
    doc="Times follow a cron expression in a time zone, or a fixed interval.",
    output="`{scheduled_at}`, the time it was due.",
    trigger=True,
    starts=_starts,
)


def run(call: NodeCall[Parameters]) -> Outcome:
    """The start payload, as it came."""
    return Output(call.payload)
