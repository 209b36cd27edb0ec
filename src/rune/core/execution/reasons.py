"""What an open execution waits for."""

from __future__ import annotations

import msgspec


class Waiting(msgspec.Struct, frozen=True, omit_defaults=True):
    """A token, join or aggregator that has not ended, and why."""

    node: str
    lineage: str
    reason: str
    arrived: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    due: int | None = None
    done: int | None = None
    total: int | None = None
    worker: str | None = None
    since: int | None = None
    attempt: int | None = None
    progress: str | None = None
