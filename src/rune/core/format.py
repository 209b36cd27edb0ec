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


def required_format(definition: Definition, *, scoped: bool = False, large_start: bool = False) -> int:
    """Return the lowest format that executions of this definition need. `scoped`: they may start children, but not of
    every workflow. `large_start`: their start payload is a blob."""
    handler = definition.settings.on_failure
    handled = handler is not None and not set(handler.statuses) <= set(HOOKED)
    return max(
        SCOPED if scoped else FIRST, HANDLED if handled else FIRST, LARGE_START if large_start else FIRST
    )
