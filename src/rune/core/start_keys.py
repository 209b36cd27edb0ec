"""Idempotency keys of starts: those of Rune itself, which begin with a reserved prefix, and those of clients, which may
not. Those of an API key with scopes are stored behind its name, so that they are no keys of anybody else."""

from __future__ import annotations

import re
from collections.abc import Collection

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

SCOPED = "key:"
"""A key of an API key with scopes, as it is stored: the name of the principal, a colon and the key as it was sent."""

RESERVED = (TICK, HOOK, REQUEUE, BULK, EXAMPLE, SCOPED)

_STORED = re.compile(f"{SCOPED}k[0-9a-f]{{16}}:")


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


def stored_key(key: str | None, principal: str, scopes: Collection[str]) -> str | None:
    """Return the form in which an idempotency key of a client is stored; raise ReservedKeyError if it is reserved."""
    check_key(key)
    return f"{principal}:{key}" if key is not None and scopes else key


def sent_key(stored: str) -> str:
    """Return an idempotency key as the client sent it."""
    scoped = _STORED.match(stored)
    return stored if scoped is None else stored[scoped.end() :]
