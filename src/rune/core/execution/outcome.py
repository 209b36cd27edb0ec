"""Outcomes: the ways in which the run of a node can end. Every ending is one of these values."""

from __future__ import annotations

from typing import Any, final

import msgspec


class Error(msgspec.Struct, frozen=True, omit_defaults=True):
    """What went wrong. `engine`: the engine itself detected it, so an end by it is `failed`, not `halted`."""

    code: str
    message: str
    details: dict[str, Any] = {}
    engine: bool = False


@final
class Output(msgspec.Struct, frozen=True, gc=False):
    """The node succeeded. `outlet` is the one taken, where the type has outlets."""

    value: Any = None
    outlet: str | None = None


@final
class Failure(msgspec.Struct, frozen=True, gc=False):
    """The attempt failed; retry and error policy decide what that means."""

    error: Error


@final
class Suspend(msgspec.Struct, frozen=True, gc=False):
    """The node waits, until a time (epoch ms), a signal, or whichever comes first."""

    until: int | None = None
    signal: str | None = None


@final
class FanOut(msgspec.Struct, frozen=True, gc=False):
    """The node ends as `count` items; `value` names where their pages are."""

    count: int
    value: Any = None


@final
class Cancelled(msgspec.Struct, frozen=True):
    """The token lies in a cancelled region; given by the runtime, never by a node."""


Outcome = Output | Failure | Suspend | FanOut | Cancelled
