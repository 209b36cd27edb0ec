"""Outcomes: how the run of a node can end."""

from __future__ import annotations

from typing import Any, final

import msgspec


class ErrorOrigin(msgspec.Struct, frozen=True, omit_defaults=True):
    """The node run that an error of an execution comes from. `lineage` holds split and item index, outermost first."""

    node_id: str
    node_type: str = ""
    lineage: tuple[tuple[str, int], ...] = ()
    attempt: int = 1


class Error(msgspec.Struct, frozen=True, omit_defaults=True):
    """An error. `engine`: detected by the engine, so that the execution ends as `failed` instead of `halted`.

    `permanent`: whether another attempt would fail as well; None: as the node type declares for the code.
    `origin` is set in the error of an execution. `traceback` is part of the history and not of `$error`: a list of
    failed items would otherwise repeat it for each of them.
    """

    code: str
    message: str
    details: dict[str, Any] = {}
    engine: bool = False
    permanent: bool | None = None
    origin: ErrorOrigin | None = None
    traceback: str = ""


@final
class Output(msgspec.Struct, frozen=True, gc=False):
    """The node succeeded. `outlet` is the selected outlet of a type that has outlets."""

    value: Any = None
    outlet: str | None = None


@final
class Failure(msgspec.Struct, frozen=True, gc=False):
    """The attempt failed; retry and error policy decide what follows."""

    error: Error


@final
class Suspend(msgspec.Struct, frozen=True, gc=False):
    """The node waits for a time (epoch ms), a signal, or the first of both."""

    until: int | None = None
    signal: str | None = None


@final
class FanOut(msgspec.Struct, frozen=True, gc=False):
    """The node ends as `count` items; `value` refers to their pages."""

    count: int
    value: Any = None


@final
class Cancelled(msgspec.Struct, frozen=True):
    """The token is in a cancelled region. Only the runtime creates this outcome."""


Outcome = Output | Failure | Suspend | FanOut | Cancelled
