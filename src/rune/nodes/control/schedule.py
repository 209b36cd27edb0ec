"""The `schedule` node: starts executions at set times, and computes the ticks of cron expressions in a time zone.

A time skipped by the change is due right after the gap. A time of day that occurs twice is due the first time; an
expression for every hour or minute follows elapsed time and is due in both.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfoNotFoundError

import msgspec
from msgspec import Meta

from rune.core.definition.problems import Problem
from rune.core.execution.outcome import Outcome, Output
from rune.core.schedules import CatchUp, Following, Schedule, every
from rune.nodes.base import NodeCall
from rune.nodes.schema import Model, Unit, conflicting, declare, missing
from rune.nodes.values import time_zone


def next_tick(schedule: Schedule, anchor: int) -> Following:
    """Return a function that computes the next tick of a schedule."""
    if schedule.cron is None:
        return every(anchor, schedule.every)
    return cron(schedule.cron, schedule.timezone)


def cron(expression: str, timezone: str) -> Following:
    """Return a function that computes the next tick of a cron expression."""
    from cronsim import CronSim  # noqa: PLC0415 - used by few definitions

    zone = UTC if timezone == "UTC" else time_zone(timezone)

    def after(moment: int) -> int | None:
        # In the second of two equal hours CronSim starts from the first one, so its ticks may lie in the past.
        for tick in CronSim(expression, datetime.fromtimestamp(moment // 1000, zone)):
            found = int(tick.timestamp()) * 1000
            if found > moment:
                return found
        return None

    return after


def cron_error(expression: str) -> str | None:
    """Return the error in a cron expression, or None if it is valid. An expression without any tick is an error."""
    from cronsim import CronSim, CronSimError  # noqa: PLC0415 - used by few definitions

    try:
        next(CronSim(expression, datetime(2000, 1, 1, tzinfo=UTC)))
    except CronSimError as error:
        return str(error).lower()
    except StopIteration:
        return "it never occurs"
    return None


_MS: dict[Unit, int] = {"seconds": 1_000, "minutes": 60_000, "hours": 3_600_000, "days": 86_400_000}


class Parameters(Model, kw_only=True, frozen=True):
    """When to start: a cron expression or a fixed interval."""

    cron: Annotated[str | None, Meta(description="Five cron fields: minute hour day month weekday.")] = None
    timezone: Annotated[str, Meta(description="IANA time zone of `cron`.")] = "UTC"
    amount: Annotated[
        Annotated[int, Meta(ge=1, le=1_000_000)] | None,
        Meta(description="Interval between starts, in units."),
    ] = None
    unit: Annotated[Unit, Meta(description="Unit of `amount`.")] = "minutes"
    catch_up: Annotated[
        bool | Literal["none", "latest", "all"],
        Meta(
            description="Which missed starts are made up for: none, the latest, or all up to `catch_up_limit`. "
            "`true` means `all`, `false` means `none`."
        ),
    ] = False
    catch_up_limit: Annotated[
        Annotated[int, Meta(ge=1, le=100)],
        Meta(description="Maximum number of missed starts that `all` makes up for, latest first."),
    ] = 100
    overlap: Annotated[
        Literal["skip", "queue", "allow", "cancel"],
        Meta(
            description="What to do while the previous execution is still running: skip this start, queue it, "
            "start in parallel, or cancel the previous execution and start."
        ),
    ] = "skip"


def check_schedule(parameters: Mapping[str, Any]) -> list[Problem]:
    """Return the problems of the parameters of a schedule that the types do not show."""
    found: list[Problem] = []
    cron, amount = parameters.get("cron"), parameters.get("amount")
    if cron is None and amount is None:
        found.append(
            missing("cron", "neither `cron` nor `amount` is given", "give `cron`, or `amount` and `unit`")
        )
    if cron is not None and amount is not None:
        found.append(conflicting("amount", "`cron` and `amount` are both given", "give one of them"))
    if cron is not None:
        found += _check_cron(cron)
    zone = parameters.get("timezone", "UTC")
    try:
        time_zone(zone)
    except ZoneInfoNotFoundError:
        found.append(conflicting("timezone", f"no time zone `{zone[:60]}`", "for example `Europe/Berlin`"))
    return found


def _check_cron(cron: str) -> list[Problem]:
    hint = "for example `*/15 9-17 * * 1-5`"
    if len(cron.split()) != 5:
        return [conflicting("cron", f"`{cron}` does not have five fields", hint)]
    error = cron_error(cron)
    return [] if error is None else [conflicting("cron", f"`{cron}`: {error}", hint)]


def schedule_of(parameters: Mapping[str, Any]) -> Schedule:
    """Return the schedule that these parameters describe."""
    given = msgspec.convert(parameters, Parameters)
    catch_up: CatchUp = given.catch_up if isinstance(given.catch_up, str) else _catch_up_mode(given.catch_up)
    return Schedule(
        cron=given.cron,
        timezone=given.timezone,
        every=(given.amount or 0) * _MS[given.unit],
        catch_up=catch_up,
        limit=given.catch_up_limit,
        overlap=given.overlap,
    )


def next_times(parameters: Mapping[str, Any], now: int, count: int) -> list[int]:
    """Return the next times of a schedule without problems, in epoch ms, as if it were deployed now."""
    following = next_tick(schedule_of(parameters), now)
    found: list[int] = []
    tick = following(now)
    while tick is not None and len(found) < count:
        found.append(tick)
        tick = following(tick)
    return found


def _catch_up_mode(catch_up: bool) -> CatchUp:
    return "all" if catch_up else "none"


TYPE = declare(
    "schedule",
    Parameters,
    kinds=dict.fromkeys(Parameters.__struct_fields__, "literal"),
    extra=check_schedule,
    summary="Starts an execution at set times.",
    doc="Start times follow a cron expression in a time zone or a fixed interval.",
    output="`{scheduled_at}`, the scheduled time.",
    trigger=True,
    starts=schedule_of,
)


def run(call: NodeCall[Parameters]) -> Outcome:
    return Output(call.payload)
