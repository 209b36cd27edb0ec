"""The format of an execution: what a process must know to continue it.

The record of an execution carries the lowest format that suits it, so that processes of earlier versions continue what
they understand and leave the rest to others.
"""

from __future__ import annotations

from typing import Final

from rune.core.definition.model import HOOKED, Definition

FORMAT: Final = 2
"""The highest format that this version reads. A worker returns tokens of a higher one to the queue."""

FIRST: Final = 1

SCOPED: Final = 2
"""The format of executions whose children are limited to scopes, which earlier versions would start regardless."""

HANDLED: Final = 2
"""The format of executions with a handler of ends other than failures, for which earlier versions write no row."""

LARGE_START: Final = 2
"""The format of executions whose start payload is a blob, which earlier versions cannot read."""

LATE: Final = 2
"""The format of executions that may be late: earlier versions know neither the timer nor the fact."""


def required_format(definition: Definition, *, scoped: bool = False, large_start: bool = False) -> int:
    """Return the lowest format that executions of this definition need. `scoped`: they may start children, but not of
    every workflow. `large_start`: their start payload is a blob."""
    settings = definition.settings
    handled = settings.on_failure is not None and not set(settings.on_failure.statuses) <= set(HOOKED)
    needs = (
        (SCOPED, scoped),
        (HANDLED, handled),
        (LARGE_START, large_start),
        (LATE, settings.expect_within is not None),
    )
    return max([FIRST, *(format for format, needed in needs if needed)])
