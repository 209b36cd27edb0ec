"""Fail points: named places at which a test may end the process. In production they do nothing."""

from __future__ import annotations

import os
from collections.abc import Callable

WALK = (
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
"""The points that an execution may pass on its way."""

ACTS = (
    "begun",
    "signalled",
    "heard",
    "controlled",
    "launching",
    "launched",
    "telling",
)
"""The points that only what is asked of an execution, or of its children, leads to."""

BESIDE = ("relayed",)
"""The points that are only where journal and state are two stores."""

POINTS = WALK + ACTS


def _nothing(name: str) -> None:
    """No test is watching."""


hit: Callable[[str], None] = _nothing


def arm(name: str, times: int = 1) -> None:
    """Die at the n-th passing of a point, as a kill -9 would: no clean-up, no flush."""
    known = POINTS + BESIDE
    if name not in known:
        raise ValueError(f"no fail point is called `{name}`; known: {', '.join(known)}")
    left = times

    def die(passed: str) -> None:
        nonlocal left
        if passed == name:
            left -= 1
            if left <= 0:
                os._exit(137)

    global hit  # noqa: PLW0603 - one process, one armed point
    hit = die


def arm_from_environment() -> None:
    """`RUNE_FAILPOINT=name[:n]` arms a point; only tests set it."""
    asked = os.environ.get("RUNE_FAILPOINT")
    if asked:
        name, _, times = asked.partition(":")
        arm(name, int(times or 1))
