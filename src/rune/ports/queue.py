"""Queue of hints, each of which refers a worker to a token, and its dead letters.

A queue may lose, duplicate and reorder hints: the state decides whether a token runs, and the scheduler resends the
hints that were lost. A dead letter is a message that no worker could process, with the reason. An execution that the
engine gave up on is a dead letter of the journal instead (`ports.journal`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

import msgspec

from rune.core.definition.model import DEFAULT_QUEUE
from rune.core.execution.token import Token
from rune.errors import RuneError
from rune.ports.journal import ExecutionRecord

HIGH, NORMAL, LOW = 7, 5, 3
LANES = ("high", "normal", "low")
LOWEST = len(LANES) - 1

"""Serves the nodes that name no queue."""

Route = Callable[[str, Token], Awaitable[str]]
"""Returns the name of the queue that serves a token of an execution."""


SentCallback = Callable[[str, Sequence[Token]], None]
"""Called with the tokens of an execution that a queue has confirmed."""


def ignore_sent(execution: str, tokens: Sequence[Token]) -> None:
    """Do nothing. The default: no component needs the confirmation."""


async def default_route(execution: str, token: Token) -> str:
    """Route every token to the default queue."""
    return DEFAULT_QUEUE


LANE_ORDERS = 8
"""After how many turns the order of the lanes repeats."""


def lane_of(priority: int, *, items: bool) -> int:
    """Return the index of the lane for a token of this priority.

    Items of a fan-out use one lane below their execution, so that executions with few tokens do not wait behind those
    with many.
    """
    lane = 0 if priority >= HIGH else LOWEST if priority <= LOW else 1
    return min(lane + items, LOWEST)


def lanes_at(turn: int) -> tuple[int, ...]:
    """Return the order in which to poll the lanes. Lower lanes come first every few turns, so that none starves."""
    return (2, 1, 0) if turn % 8 == 0 else (1, 0, 2) if turn % 4 == 0 else (0, 1, 2)


class Delivery(msgspec.Struct, frozen=True):
    """A hint that a consumer has received and not yet acknowledged. `again`: it was delivered before."""

    execution: str
    token: Token
    tag: int = 0
    again: bool = False
    accepted: ExecutionRecord | None = None  # the record of the execution, if the queue has it with the hint


def is_sibling(delivery: Delivery, other: Delivery) -> bool:
    """Return whether two deliveries are of the same node in items of one execution."""
    return other.execution == delivery.execution and other.token.node == delivery.token.node


class Queue(Protocol):
    """Delivers hints to workers, each at least once unless it is lost."""

    async def send(self, execution: str, tokens: Sequence[Token], priority: int = NORMAL) -> None:
        """Enqueue one hint per token."""

    async def receive(self) -> Delivery:
        """Wait for the next hint."""

    async def receive_more(self, delivery: Delivery, limit: int) -> list[Delivery]:
        """Return at most `limit` further hints of the same execution and node that can be had without waiting. A queue
        may have none at hand."""

    async def ack(self, delivery: Delivery) -> None:
        """Acknowledge a delivery: the queue does not deliver it again."""

    async def requeue(self, delivery: Delivery, delay: float = 0.0) -> None:
        """Return a delivery to the queue, after `delay` seconds, for this consumer or another."""

    async def dead_letter(self, delivery: Delivery, code: str, message: str) -> None:
        """Remove a delivery that no worker can process. It moves to the dead letter queue with the reason, if the
        queue has one."""

    async def pause(self) -> None:
        """Deliver nothing more: `receive` waits. Hints that were fetched and not returned by `receive` go back to the
        queue, for other consumers."""

    async def resume(self) -> None:
        """Deliver again after a pause."""

    async def close(self) -> None:
        """Stop receiving. Hints that were fetched and not returned by `receive` go back to the queue."""


class LeftToOthersError(Exception):
    """This process cannot handle a message, but another may: it returns to the queue."""


class QueueDeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """A message that no worker could process. `execution` is None if the body cannot be decoded, `at` (epoch ms) if the
    queue did not record the time."""

    id: str
    code: str
    reason: str
    queue: str
    execution: str | None
    body: bytes
    at: int | None = None
    rescues: int = 0  # how often it was requeued


class DeadLetterQueue(Protocol):
    """The dead letters of one queue technology."""

    async def list(self, limit: int = 100) -> list[QueueDeadLetter]:
        """Return dead letters, oldest first."""

    async def find(self, letter: str) -> QueueDeadLetter | None:
        """Return a letter with this id, however many there are."""

    async def count(self) -> int:
        """Return the number of dead letters."""

    async def requeue(self, letter: str) -> int:
        """Send the letters with this id to their original queue again and return how many."""

    async def discard(self, letter: str) -> int:
        """Delete the letters with this id and return how many."""


def letter_id(queue: str, code: str, body: bytes, mark: str = "") -> str:
    """Return the id of a letter: a digest of its content and of what tells it from others with the same content."""
    content = f"{queue}\x1f{code}\x1f{mark}\x1f".encode(errors="replace") + body
    return "m" + hashlib.blake2b(content, digest_size=8).hexdigest()


def failure_of(error: Exception) -> tuple[str, str]:
    """Return code and reason of the dead letter that an error makes."""
    if isinstance(error, RuneError):
        return error.code, error.message
    return "DEAD_LETTERED", f"{type(error).__name__}: {error}"
