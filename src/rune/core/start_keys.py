"""Idempotency keys of starts: those of Rune itself, which begin with a reserved prefix, and those of clients, which may
not."""

from __future__ import annotations

from rune.core.execution.token import is_child_id
from rune.errors import RuneError

TICK = "tick:"
"""A scheduled time of a trigger."""

HOOK = "hook:"
"""A delivery to a webhook, or a handler."""

REQUEUE = "requeue:"
"""The retry of a dead letter."""

BULK = "bulk:"
"""The retry of an execution by a bulk job."""

EXAMPLE = "example:"
"""The execution that `rune up` starts of an example."""

RESERVED = (TICK, HOOK, REQUEUE, BULK, EXAMPLE)


class ReservedKeyError(RuneError):
    """An idempotency key of a client has the form of one that Rune makes itself."""

    code = "RESERVED_KEY"


def check_key(key: str | None) -> None:
    """Raise ReservedKeyError if a client may not use this idempotency key."""
    if key is not None and key.startswith(RESERVED):
        listed = ", ".join(f"`{each}`" for each in RESERVED)
        raise ReservedKeyError(f"an idempotency key may not begin with {listed}; Rune makes such keys itself")


def check_signal_key(key: str | None) -> None:
    """Raise ReservedKeyError if a client may not use this idempotency key for a signal: the end of a child is delivered
    to its parent under the id of the child."""
    check_key(key)
    if key is not None and is_child_id(key):
        raise ReservedKeyError(
            f"the idempotency key of a signal may not be the id of a child execution, such as `{key}`: its end is"
            " delivered under this key"
        )
