"""Effects: what a decision asks of the state. The commit is the only thing that carries them out."""

from __future__ import annotations

from typing import Literal, final

import msgspec

from rune.core.execution.fact import TokenFact
from rune.core.execution.outcome import Error
from rune.core.execution.token import Path, Ref, Token


@final
class EmitToken(msgspec.Struct, frozen=True, gc=False):
    """A node gets its token."""

    node: int
    payload: Ref
    error: Ref | None


@final
class ArriveAtJoin(msgspec.Struct, frozen=True, gc=False):
    """An edge into a join is resolved: alive with a payload, or dead, perhaps because of an error."""

    edge: int
    alive: bool
    payload: Ref | None
    error: Ref | None


@final
class CollectItem(msgspec.Struct, frozen=True, gc=False):
    """An edge out of this item into its aggregator is resolved."""

    edge: int
    mark: int


@final
class SkipNode(msgspec.Struct, frozen=True, gc=False):
    """A node will never run in this scope; nothing but history needs to know."""

    node: int


@final
class FanOutItems(msgspec.Struct, frozen=True, gc=False):
    """A split became this many items."""

    node: int
    count: int
    payload: Ref
    error: Ref | None


@final
class UncollectedFailure(msgspec.Struct, frozen=True):
    """An item failed where no list will show it."""

    node: int
    failure: Error


@final
class FinishExecution(msgspec.Struct, frozen=True):
    """The execution is to end like this."""

    status: Literal["completed", "failed", "halted", "cancelled"]
    error: Error | None = None


Effect = (
    EmitToken | ArriveAtJoin | CollectItem | SkipNode | FanOutItems | UncollectedFailure | FinishExecution
)


class Decision(msgspec.Struct, frozen=True, gc=False):
    """What one outcome means. `fact` is what the journal keeps of it; a skip or a dispatch leaves none."""

    node: int
    path: Path
    at: int
    fact: TokenFact | None
    effects: tuple[Effect, ...] = ()


class Timer(msgspec.Struct, frozen=True, gc=False):
    """A deterministic appointment.

    `wait`, `retry` and `join` belong to a token, `finish` and `deadline` to the execution.
    """

    kind: Literal["wait", "retry", "join", "finish", "deadline"]
    node: int = -1
    path: Path = ()
    number: int = 0


class Applied(msgspec.Struct, gc=False):
    """What followed from a decision: tokens to send, timers to set (due in epoch ms) or to drop, and the end
    if it came.

    `waiting` are joins that got an arrival and stay closed: node, path, how many arrived, of how many.
    """

    emitted: list[Token] = []
    armed: list[tuple[Timer, int]] = []
    disarmed: list[Timer] = []
    finish: FinishExecution | None = None
    skipped: list[tuple[int, Path]] = []
    waiting: list[tuple[int, Path, int, int]] = []
    known: bool = True  # False: the state had no such token; fold and try again
    fresh: bool = True  # False: a twin; nothing changed


ALIVE, DEAD, FAILED = 1, 2, 3
"""The marks of an item's edge at its aggregator."""
