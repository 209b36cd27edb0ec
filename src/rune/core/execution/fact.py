"""Facts: the rows of the journal. Written once, first writer wins, everybody uses the stored one.

Skips, arrivals and openings are not facts: they follow.
"""

from __future__ import annotations

from typing import Any, Literal, final

import msgspec

from rune.core.execution.outcome import Error
from rune.core.execution.token import Arrived, Path, Ref


class ExecutionStarted(msgspec.Struct, frozen=True, tag="start"):
    """The execution was accepted."""

    at: int


@final
class NodeResult(msgspec.Struct, frozen=True, tag="result", omit_defaults=True, gc=False):
    """A token is done. `payload` and `error` are what its out-edges pass on if not its own output."""

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
    kept: bool = False  # taken over from the execution that this one runs again


@final
class EffectStarted(msgspec.Struct, frozen=True, tag="begun", gc=False):
    """An effect that must not be made twice is about to be made. Who finds this row and no result cannot know."""

    node: int
    path: Path
    at: int
    attempt: int


@final
class AttemptFailed(msgspec.Struct, frozen=True, tag="attempt", omit_defaults=True, gc=False):
    """One try failed and another follows."""

    node: int
    path: Path
    at: int
    attempt: int
    failure: Error
    signal: str | None = None


@final
class NodeSuspended(msgspec.Struct, frozen=True, tag="suspend", omit_defaults=True, gc=False):
    """A token waits until a time or a signal; past its deadline a signal is waited for no longer."""

    node: int
    path: Path
    at: int
    attempt: int = 1
    due: int | None = None
    signal: str | None = None
    deadline: int | None = None


@final
class SignalReceived(msgspec.Struct, frozen=True, tag="signal", omit_defaults=True):
    """Somebody said something to the execution. It is kept until a token that waits for its name takes it."""

    at: int
    id: str
    name: str
    path: Path | None = None  # None: whoever waits longest, in any lineage
    value: Any = None


@final
class RaceWinner(msgspec.Struct, frozen=True, tag="choice", gc=False):
    """Which parties opened a join whose node has effects, or cancels its losers, before it runs."""

    node: int
    path: Path
    at: int
    arrived: tuple[Arrived, ...]
    payload: Ref
    error: Ref | None = None


class PauseChanged(msgspec.Struct, frozen=True, tag="control"):
    """The execution was paused or resumed; `number` counts them."""

    at: int
    number: int
    paused: bool


class ExecutionEnded(msgspec.Struct, frozen=True, tag="end"):
    """The one terminal row."""

    at: int
    status: Literal["completed", "failed", "halted", "cancelled"]
    error: Error | None = None


Fact = (
    ExecutionStarted
    | NodeResult
    | EffectStarted
    | AttemptFailed
    | NodeSuspended
    | SignalReceived
    | RaceWinner
    | PauseChanged
    | ExecutionEnded
)
TokenFact = NodeResult | AttemptFailed | NodeSuspended | RaceWinner


def fact_key(fact: Fact) -> tuple[Any, ...]:
    """The write-once key of a fact inside its execution."""
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
        case ExecutionStarted():
            return ("start",)
        case _:
            return ("end",)
