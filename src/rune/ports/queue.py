"""The queue carries hints: look at this token. It may lose, double and reorder them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from rune.core.execution.token import Token

HIGH, NORMAL, LOW = 7, 5, 3
LANES = ("high", "normal", "low")
LOWEST = len(LANES) - 1


def lane_of(priority: int, *, items: bool) -> int:
    """Which of the lanes a token takes. The items of a fan-out ride one below their execution, so that whoever has
    few tokens does not stand behind whoever has many."""
    own = 0 if priority >= HIGH else LOWEST if priority <= LOW else 1
    return min(own + items, LOWEST)


def lanes_at(turn: int) -> tuple[int, ...]:
    """In which order the lanes are looked at: the lower ones come first now and then, so that nothing starves."""
    return (2, 1, 0) if turn % 8 == 0 else (1, 0, 2) if turn % 4 == 0 else (0, 1, 2)


class Delivery(msgspec.Struct, frozen=True):
    """One hint in somebody's hands until it is acknowledged."""

    execution: str
    token: Token
    tag: int = 0
    again: bool = False


class Queue(Protocol):
    """Hints from whoever has work to whoever has a free slot."""

    async def send(self, execution: str, tokens: Sequence[Token], priority: int = NORMAL) -> None:
        """Hand over hints."""

    async def receive(self) -> Delivery:
        """Wait for a hint."""

    async def ack(self, delivery: Delivery) -> None:
        """The hint has served."""

    async def requeue(self, delivery: Delivery, delay: float = 0.0) -> None:
        """Somebody else, or later."""

    async def dead_letter(self, delivery: Delivery, code: str, message: str) -> None:
        """Nobody will ever serve it: put aside with the reason where there is a place for such, else let go."""

    async def close(self) -> None:
        """Take nothing more; what was taken and handed to nobody is for others."""
