"""Cron expressions: computes their ticks in a time zone, across daylight-saving changes.

A time skipped by the change is due right after the gap. A time of day that occurs twice is due the first time; an
expression for every hour or minute follows elapsed time and is due in both.
"""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from rune.core.triggers import Following, Schedule, every


def next_tick(schedule: Schedule, anchor: int) -> Following:
    """Return a function that computes the next tick of a schedule."""
    if schedule.cron is None:
        return every(anchor, schedule.every)
    return cron(schedule.cron, schedule.timezone)


def cron(expression: str, timezone: str) -> Following:
    """Return a function that computes the next tick of a cron expression."""
    from cronsim import CronSim  # noqa: PLC0415 - used by few definitions

    zone = UTC if timezone == "UTC" else ZoneInfo(timezone)

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
