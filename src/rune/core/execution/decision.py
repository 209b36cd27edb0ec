"""Decisions, the effects they have on the state, and the result of applying them."""

from __future__ import annotations

from typing import Literal, final

import msgspec

from rune.core.execution.fact import TokenFact
from rune.core.execution.outcome import Error
from rune.core.execution.token import Path, Ref, Token


@final
class EmitToken(msgspec.Struct, frozen=True, gc=False):
    """Emit the token of a node."""

    node: int
    payload: Ref
    error: Ref | None


@final
class ArriveAtJoin(msgspec.Struct, frozen=True, gc=False):
    """Resolve an edge into a join: alive with a payload, or dead, with the error that caused it if there is one."""

    edge: int
    alive: bool
    payload: Ref | None
    error: Ref | None


@final
class CollectItem(msgspec.Struct, frozen=True, gc=False):
    """Resolve an edge from this item into its aggregator."""

    edge: int
    mark: int


@final
class SkipNode(msgspec.Struct, frozen=True, gc=False):
    """A node will never run in this scope. Recorded for the history only."""

    node: int


@final
class FanOutItems(msgspec.Struct, frozen=True, gc=False):
    """Start the items of a split."""

    node: int
    count: int
    payload: Ref
    error: Ref | None


@final
class UncollectedFailure(msgspec.Struct, frozen=True):
    """An item failed on a path that no aggregator collects."""

    node: int
    failure: Error


@final
class FinishExecution(msgspec.Struct, frozen=True, omit_defaults=True):
    """End the execution with this status. `failed_items` counts the items of splits that failed."""

    status: Literal["completed", "failed", "halted", "cancelled"]
    error: Error | None = None
    failed_items: int = 0


Effect = (
    EmitToken | ArriveAtJoin | CollectItem | SkipNode | FanOutItems | UncollectedFailure | FinishExecution
)


class Decision(msgspec.Struct, frozen=True, gc=False):
    """The consequences of one outcome. `fact` is the row for the journal; a skip or a dispatch has none."""

    node: int
    path: Path
    at: int
    fact: TokenFact | None
    effects: tuple[Effect, ...] = ()


class Timer(msgspec.Struct, frozen=True, gc=False):
    """A timer, identified by its fields. `wait`, `retry` and `join` belong to a token, the others to the execution."""

    kind: Literal["wait", "retry", "join", "finish", "deadline", "late"]
    node: int = -1
    path: Path = ()
    number: int = 0


LATENESS = Timer("late")


class Applied(msgspec.Struct, gc=False):
    """The result of a transition: tokens to send, timers to arm (due in epoch ms) or disarm, and the end if reached.

    `waiting` lists joins that received an arrival and stay closed: node, path, arrivals, expected arrivals.
    """

    emitted: list[Token] = []
    armed: list[tuple[Timer, int]] = []
    disarmed: list[Timer] = []
    finish: FinishExecution | None = None
    skipped: list[tuple[int, Path]] = []
    waiting: list[tuple[int, Path, int, int]] = []
    known: bool = True  # False: the state has no such token and must be folded from the journal
    late: bool = False  # the execution is late, which has to be recorded
    fresh: bool = True  # False: a duplicate; the state did not change


ALIVE, DEAD, FAILED = 1, 2, 3
"""How an edge from an item into its aggregator was resolved."""
