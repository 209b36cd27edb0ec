"""Ticks: when a schedule is due, which of the times that were missed are made up for, and what becomes of a tick while
the execution before it still runs.

Hooks: what an HTTP request that starts an execution has to look like, and whether its signature holds.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Callable
from typing import Literal

import msgspec

CatchUp = Literal["none", "latest", "all"]
Overlap = Literal["skip", "queue", "allow", "cancel"]

Following = Callable[[int], int | None]
"""The first tick after a moment; None: there is none."""

ON_TIME_MS = 30_000
"""A tick that is found later than this, in ms, was missed."""

RETRY_DELAY_MS = 1_000
"""How soon a tick that waits for the execution before it is looked at again, in ms."""

MAX_WAITING_TICKS = 100
_HOUR = 3_600_000


class Schedule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """When executions are started: by a cron expression in a time zone, or every so many ms from an anchor on."""

    cron: str | None = None
    timezone: str = "UTC"
    every: int = 0
    catch_up: CatchUp = "none"
    limit: int = 100  # of the times that are made up for
    overlap: Overlap = "skip"

    def same_times(self, other: Schedule | None) -> bool:
        """Whether both are due at the same times."""
        mine = (self.cron, self.timezone, self.every)
        return other is not None and mine == (other.cron, other.timezone, other.every)


class ScheduleState(msgspec.Struct, frozen=True, omit_defaults=True):
    """How far a schedule has come. A tick in `starting` is started whatever happens: it is started under its own
    name, so whoever does it again does nothing. Only ticks that are not there yet may be left out."""

    next: int | None = None
    waiting: tuple[int, ...] = ()
    starting: int | None = None
    last: str | None = None  # the execution that was started last


def every(anchor: int, period: int) -> Following:
    """Ticks at equal distances from an anchor: however late one is found, the next is where it would have been."""
    return lambda moment: anchor + ((moment - anchor) // period + 1) * period


def advance(
    schedule: Schedule, following: Following, standing: ScheduleState, now: int, *, running: bool
) -> ScheduleState:
    """What is to be done now, as a standing: a tick in `starting` is to be started. `running`: whether the execution
    that was started last has not ended."""
    if standing.starting is not None:
        return standing
    found, after = due(schedule, following, standing.next, now)
    waiting = (*standing.waiting, *found)[:MAX_WAITING_TICKS]
    starting: int | None = None
    if waiting and schedule.overlap == "cancel":
        starting, waiting = waiting[-1], ()
    elif waiting and (schedule.overlap == "allow" or not running):
        starting, waiting = waiting[0], waiting[1:]
    elif schedule.overlap == "skip":
        waiting = ()
    return ScheduleState(after, waiting, starting, standing.last)


def started(standing: ScheduleState, execution: str | None) -> ScheduleState:
    """The tick was started, or could not be (None)."""
    return ScheduleState(standing.next, standing.waiting, None, execution or standing.last)


def next_start(standing: ScheduleState, now: int) -> int | None:
    """When the schedule has to be looked at next; None: never again."""
    if standing.starting is not None:
        return now
    if not standing.waiting:
        return standing.next
    return now + RETRY_DELAY_MS if standing.next is None else min(standing.next, now + RETRY_DELAY_MS)


def due(
    schedule: Schedule, following: Following, first: int | None, now: int
) -> tuple[tuple[int, ...], int | None]:
    """The ticks that are to be started, the oldest first, and the first that lies ahead."""
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
    """The newest ticks. Looks back further and further: a year of minutes is not counted one by one."""
    width = _HOUR
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


WebhookAuth = Literal["none", "header", "hmac"]
WebhookResponse = Literal["accepted", "result"]

SIGNATURE = "x-rune-signature"
TIMESTAMP = "x-rune-timestamp"
DELIVERY = ("x-delivery-id", "idempotency-key", "x-github-delivery")
"""Headers that may name a delivery, in this order."""

_SIGNATURE = re.compile(r"sha256=([0-9a-f]{64})")
_TIMESTAMP = re.compile(r"[0-9]{1,12}")


class WebhookConfig(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a request has to be like."""

    path: str | None = None
    method: str = "POST"
    auth: WebhookAuth = "none"
    window: int = 300  # s that a signature is good for
    delivery: tuple[str, ...] = DELIVERY
    respond: WebhookResponse = "accepted"
    wait: float = 30.0  # s that somebody who wants the result waits for it
    max_bytes: int = 1024 * 1024


def sign(secret: str, timestamp: str, body: bytes) -> str:
    """The signature of a body that is sent at a moment (epoch seconds)."""
    return "sha256=" + hmac.new(secret.encode(), timestamp.encode() + b"." + body, hashlib.sha256).hexdigest()


def signature_error(
    secret: str, timestamp: str | None, signature: str | None, body: bytes, now: int, window: int
) -> str | None:
    """What is wrong with a signature; None: nothing. `now` in epoch ms, `window` in s."""
    if not timestamp or not signature:
        return "missing"
    if not _TIMESTAMP.fullmatch(timestamp) or not _SIGNATURE.fullmatch(signature):
        return "malformed"
    if not hmac.compare_digest(sign(secret, timestamp, body), signature):
        return "wrong"
    # The moment is believed only now that the signature over it holds.
    return "old" if abs(now - int(timestamp) * 1000) > window * 1000 else None


def replay_deadline(timestamp: str, window: int) -> int:
    """Until when a signature that holds may come again, in epoch ms."""
    return (int(timestamp) + window + 1) * 1000
