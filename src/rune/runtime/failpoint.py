"""Fail points: named places at which a test can kill the process. In production they do nothing."""

from __future__ import annotations

import os
from collections.abc import Callable

EXECUTION_POINTS = (
    "received",
    "claimed",
    "chosen",
    "ran",
    "journaled",
    "applied",
    "sent",
    "ending",
    "ended",
    "accepted",
    "admitted",
    "fired",
)
"""Points that a plain execution passes."""

OPERATION_POINTS = (
    "begun",
    "late",
    "signalled",
    "signal_applied",
    "controlled",
    "launching",
    "launched",
    "reporting",
)
"""Points that only signals, pauses, at-most-once nodes and child executions pass."""

OUTBOX_POINTS = ("relayed",)
"""Points that exist only where journal and state are two stores."""

HOOK_POINTS = ("handling", "handled", "missing", "missed")
"""Points that only the start of a handler passes, and the search for missing executions."""

POINTS = EXECUTION_POINTS + OPERATION_POINTS


def _ignore(name: str) -> None:
    """Do nothing. The default: no fail point is armed."""


hit: Callable[[str], None] = _ignore


def arm(name: str, times: int = 1) -> None:
    """Kill the process when it passes a point for the n-th time, like kill -9: no clean-up, no flush."""
    known = POINTS + OUTBOX_POINTS + HOOK_POINTS
    if name not in known:
        raise ValueError(f"unknown fail point `{name}`; known: {', '.join(known)}")
    remaining = times

    def die(passed: str) -> None:
        nonlocal remaining
        if passed == name:
            remaining -= 1
            if remaining <= 0:
                os._exit(137)

    global hit  # noqa: PLW0603 - one process, one armed point
    hit = die


def arm_from_environment() -> None:
    """Arm the point given by `RUNE_FAILPOINT=name[:n]`, which only tests set."""
    setting = os.environ.get("RUNE_FAILPOINT")
    if setting:
        name, _, times = setting.partition(":")
        arm(name, int(times or 1))
