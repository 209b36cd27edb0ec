"""Schedules: when a tick is due, which missed ticks are caught up, and what happens while the previous execution
runs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import msgspec

CatchUp = Literal["none", "latest", "all"]
Overlap = Literal["skip", "queue", "allow", "cancel"]

Following = Callable[[int], int | None]
"""Returns the first tick after a time (epoch ms), or None after the last one."""

ON_TIME_MS = 30_000
"""A tick that is processed later than this counts as missed."""

RETRY_DELAY_MS = 1_000
"""Delay before a tick that waits for the previous execution is checked again."""

MAX_WAITING_TICKS = 100
_HOUR_MS = 3_600_000


class Schedule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """When executions are started: by a cron expression in a time zone, or every `every` ms from an anchor."""

    cron: str | None = None
    timezone: str = "UTC"
    every: int = 0
    catch_up: CatchUp = "none"
    limit: int = 100  # maximum number of missed ticks that are caught up
    overlap: Overlap = "skip"

    def same_times(self, other: Schedule | None) -> bool:
        """Return whether both schedules are due at the same times."""
        mine = (self.cron, self.timezone, self.every)
        return other is not None and mine == (other.cron, other.timezone, other.every)


class ScheduleState(msgspec.Struct, frozen=True, omit_defaults=True):
    """The progress of a schedule.

    The tick in `starting` is always started. Its execution has a deterministic id, so a second start has no effect.
    Only ticks that are not yet in `starting` can be dropped.
    """

    next: int | None = None
    waiting: tuple[int, ...] = ()
    starting: int | None = None
    last: str | None = None  # id of the latest execution


def every(anchor: int, period: int) -> Following:
    """Return ticks at a fixed period from an anchor, so that a late tick does not shift the following ones."""
    return lambda moment: anchor + ((moment - anchor) // period + 1) * period


def advance(
    schedule: Schedule, following: Following, state: ScheduleState, now: int, *, running: bool
) -> ScheduleState:
    """Return the next state; the caller starts the tick in its `starting`. `running`: the latest execution is open."""
    if state.starting is not None:
        return state
    found, after = due(schedule, following, state.next, now)
    waiting = (*state.waiting, *found)[:MAX_WAITING_TICKS]
    starting: int | None = None
    if waiting and schedule.overlap == "cancel":
        starting, waiting = waiting[-1], ()
    elif waiting and (schedule.overlap == "allow" or not running):
        starting, waiting = waiting[0], waiting[1:]
    elif schedule.overlap == "skip":
        waiting = ()
    return ScheduleState(after, waiting, starting, state.last)


def started(state: ScheduleState, execution: str | None) -> ScheduleState:
    """Return the state after the tick in `starting` was started, or could not be (None)."""
    return ScheduleState(state.next, state.waiting, None, execution or state.last)


def next_start(state: ScheduleState, now: int) -> int | None:
    """Return when the schedule must be processed next (epoch ms); None: never."""
    if state.starting is not None:
        return now
    if not state.waiting:
        return state.next
    return now + RETRY_DELAY_MS if state.next is None else min(state.next, now + RETRY_DELAY_MS)


def due(
    schedule: Schedule, following: Following, first: int | None, now: int
) -> tuple[tuple[int, ...], int | None]:
    """Return the ticks to start, oldest first, and the first tick in the future."""
    if first is None or first > now:
        return (), first
    missed = first < now - ON_TIME_MS
    found = _between(following, max(first, now - ON_TIME_MS), now)
    if missed and schedule.catch_up == "latest":
        found = _newest(following, first, now, 1)
    elif missed and schedule.catch_up == "all":
        found = _newest(following, first, now, max(schedule.limit, len(found)))
    return tuple(found[-MAX_WAITING_TICKS:]), following(now)


def _newest(following: Following, first: int, now: int, count: int) -> list[int]:
    """Return the newest ticks. The search window grows, so that a year of missed minutes is not enumerated."""
    width = _HOUR_MS
    while True:
        begin = max(first, now - width)
        found = _between(following, begin, now)
        if begin == first or len(found) >= count:
            return found[-count:]
        width *= 4


def _between(following: Following, begin: int, end: int) -> list[int]:
    found: list[int] = []
    tick = following(begin - 1)
    while tick is not None and tick <= end:
        found.append(tick)
        tick = following(tick)
    return found
