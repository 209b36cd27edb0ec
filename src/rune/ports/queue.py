"""Queue of hints, each of which refers a worker to a token.

A queue may lose, duplicate and reorder hints: the state decides whether a token runs, and the scheduler resends the
hints that were lost.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

import msgspec

from rune.core.execution.token import Token

HIGH, NORMAL, LOW = 7, 5, 3
LANES = ("high", "normal", "low")
LOWEST = len(LANES) - 1

DEFAULT_QUEUE = "default"
"""Serves the nodes that name no queue."""

Route = Callable[[str, Token], Awaitable[str]]
"""Returns the name of the queue that serves a token of an execution."""


SentCallback = Callable[[str, Sequence[Token]], None]
"""Called with the tokens of an execution that a queue has confirmed."""


def ignore_sent(execution: str, tokens: Sequence[Token]) -> None:
    """The default: no component has to know."""


async def default_route(execution: str, token: Token) -> str:
    """Route every token to the default queue."""
    return DEFAULT_QUEUE


def lane_of(priority: int, *, items: bool) -> int:
    """Return the index of the lane for a token of this priority.

    Items of a fan-out use one lane below their execution, so that executions with few tokens do not wait behind those
    with many.
    """
    own = 0 if priority >= HIGH else LOWEST if priority <= LOW else 1
    return min(own + items, LOWEST)


def lanes_at(turn: int) -> tuple[int, ...]:
    """Return the order in which to poll the lanes. Lower lanes come first every few turns, so that none starves."""
    return (2, 1, 0) if turn % 8 == 0 else (1, 0, 2) if turn % 4 == 0 else (0, 1, 2)


class Delivery(msgspec.Struct, frozen=True):
    """A hint that a consumer has received and not yet acknowledged. `again`: it was delivered before."""

    execution: str
    token: Token
    tag: int = 0
    again: bool = False


class Queue(Protocol):
    """Delivers hints to workers, each at least once unless it is lost."""

    async def send(self, execution: str, tokens: Sequence[Token], priority: int = NORMAL) -> None:
        """Enqueue one hint per token."""

    async def receive(self) -> Delivery:
        """Wait for the next hint."""

    async def ack(self, delivery: Delivery) -> None:
        """Acknowledge a delivery: the queue does not deliver it again."""

    async def requeue(self, delivery: Delivery, delay: float = 0.0) -> None:
        """Return a delivery to the queue, after `delay` seconds, for this consumer or another."""

    async def dead_letter(self, delivery: Delivery, code: str, message: str) -> None:
        """Remove a delivery that no worker can process. It moves to the dead letter queue with the reason, if the
        queue has one."""

    async def close(self) -> None:
        """Stop receiving. Hints that were fetched and not returned by `receive` go back to the queue."""
