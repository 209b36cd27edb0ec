"""Readings: how the stores stood a moment ago, whoever looks."""

from __future__ import annotations

import msgspec


class QueueReading(msgspec.Struct, frozen=True):
    """One queue."""

    queue: str
    waiting: int
    held: int | None
    age: float | None


class Readings(msgspec.Struct, kw_only=True):
    """What is not known is None, and no sample is shown of it."""

    queues: tuple[QueueReading, ...] = ()
    members: dict[str, int] = {}  # by role
    letters: int | None = None
    outbox_rows: int | None = None
    outbox_lag: float | None = None
    timer_lag: float | None = None
    folds: int = 0
    busy: int = 0
    slots: int = 0
    troubles: int = 0  # questions that had no answer
