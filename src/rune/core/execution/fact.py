"""Facts: the rows of the journal. Each is written once; after a conflict every process uses the stored row.

Skips, arrivals and the opening of joins are not facts: they are derived from the results.
"""

from __future__ import annotations

from typing import Any, Literal, final

import msgspec

from rune.core.execution.outcome import Error
from rune.core.execution.token import Arrived, Path, Ref

CHILD_SIGNAL = "child:"
"""Prefix of the signals that report the end of a child; users cannot send them."""


class ExecutionStarted(msgspec.Struct, frozen=True, tag="start"):
    """The execution was accepted."""

    at: int


@final
class NodeResult(msgspec.Struct, frozen=True, tag="result", omit_defaults=True, gc=False):
    """The final result of a token. `payload` and `error`, if set, are passed to its out-edges instead of its output."""

    node: int
    path: Path
    at: int
    status: Literal["ok", "failed", "cancelled", "skipped"]
    outlet: str | None = None
    value: Any = None
    failure: Error | None = None
    items: int | None = None
    payload: Ref | None = None
    error: Ref | None = None
    arrived: tuple[Arrived, ...] = ()
    attempt: int = 1
    began: int = 0
    signal: str | None = None
    kept: bool = False  # copied from the execution that this one reruns
    pinned: bool = False  # of a kept result: the output was given, in an execution with pins
    worker: str = ""  # that ran a node with effects
    logged: bool = False  # the attempt has a log


@final
class EffectStarted(msgspec.Struct, frozen=True, tag="begun", gc=False):
    """An `at_most_once` effect is about to run. Without a result after it, the outcome of the effect is unknown."""

    node: int
    path: Path
    at: int
    attempt: int


@final
class AttemptFailed(msgspec.Struct, frozen=True, tag="attempt", omit_defaults=True, gc=False):
    """One attempt failed and will be retried."""

    node: int
    path: Path
    at: int
    attempt: int
    failure: Error
    signal: str | None = None
    began: int = 0
    worker: str = ""
    logged: bool = False


@final
class NodeSuspended(msgspec.Struct, frozen=True, tag="suspend", omit_defaults=True, gc=False):
    """A token waits for a time or a signal. After `deadline` it no longer waits for the signal."""

    node: int
    path: Path
    at: int
    attempt: int = 1
    due: int | None = None
    signal: str | None = None
    deadline: int | None = None
    began: int = 0
    logged: bool = False


@final
class SignalReceived(msgspec.Struct, frozen=True, tag="signal", omit_defaults=True):
    """A signal was sent to the execution. It is stored until a token that waits for its name consumes it."""

    at: int
    id: str
    name: str
    path: Path | None = None  # None: the token that has waited longest, in any lineage
    value: Any = None


@final
class RaceWinner(msgspec.Struct, frozen=True, tag="choice", gc=False):
    """Which edges opened a join, recorded before its node runs if the node has effects or cancels its losers."""

    node: int
    path: Path
    at: int
    arrived: tuple[Arrived, ...]
    payload: Ref
    error: Ref | None = None


class PauseChanged(msgspec.Struct, frozen=True, tag="control", omit_defaults=True):
    """The execution was paused or resumed; `number` counts these changes. `reason` is set if the engine paused it."""

    at: int
    number: int
    paused: bool
    reason: str = ""


class ExecutionLate(msgspec.Struct, frozen=True, tag="late"):
    """The execution was open longer than its definition expects. Nothing of it changes."""

    at: int


class ExecutionEnded(msgspec.Struct, frozen=True, tag="end", omit_defaults=True):
    """The terminal row of an execution. `failed_items` counts the items of splits that failed."""

    at: int
    status: Literal["completed", "failed", "halted", "cancelled"]
    error: Error | None = None
    failed_items: int = 0


Fact = (
    ExecutionStarted
    | NodeResult
    | EffectStarted
    | AttemptFailed
    | NodeSuspended
    | SignalReceived
    | RaceWinner
    | PauseChanged
    | ExecutionLate
    | ExecutionEnded
)
TokenFact = NodeResult | AttemptFailed | NodeSuspended | RaceWinner


def fact_key(fact: Fact) -> tuple[Any, ...]:
    """Return the key under which a fact is written once per execution."""
    match fact:
        case NodeResult(node=node, path=path):
            return ("result", node, path)
        case EffectStarted(node=node, path=path, attempt=attempt):
            return ("begun", node, path, attempt)
        case AttemptFailed(node=node, path=path, attempt=attempt):
            return ("attempt", node, path, attempt)
        case NodeSuspended(node=node, path=path, attempt=attempt):
            return ("suspend", node, path, attempt)
        case SignalReceived(id=id):
            return ("signal", id)
        case RaceWinner(node=node, path=path):
            return ("choice", node, path)
        case PauseChanged(number=number):
            return ("control", number)
        case ExecutionLate():
            return ("late",)
        case ExecutionStarted():
            return ("start",)
        case _:
            return ("end",)
