"""Cron expressions: the times they name, in their time zone, through the days on which clocks are put forward or back.

A time that the clocks skip is due right after the gap. A time of day that comes twice is due the first time; an
expression for every hour or minute goes by real time and is due in both.
"""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from rune.core.triggers import Following, Schedule, every


def next_tick(schedule: Schedule, anchor: int) -> Following:
    """The ticks of a schedule."""
    if schedule.cron is None:
        return every(anchor, schedule.every)
    return cron(schedule.cron, schedule.timezone)


def cron(expression: str, timezone: str) -> Following:
    """The ticks of a cron expression."""
    from cronsim import CronSim  # noqa: PLC0415 - few definitions need it

    zone = UTC if timezone == "UTC" else ZoneInfo(timezone)

    def after(moment: int) -> int | None:
        # In the second of two equal hours the library begins in the first, which may lie behind.
        for tick in CronSim(expression, datetime.fromtimestamp(moment // 1000, zone)):
            found = int(tick.timestamp()) * 1000
            if found > moment:
                return found
        return None

    return after


def cron_error(expression: str) -> str | None:
    """What is wrong with a cron expression; None: nothing. One that never comes is wrong too."""
    from cronsim import CronSim, CronSimError  # noqa: PLC0415 - few definitions need it

    try:
        next(CronSim(expression, datetime(2000, 1, 1, tzinfo=UTC)))
    except CronSimError as error:
        return str(error).lower()
    except StopIteration:
        return "never comes"
    return None
