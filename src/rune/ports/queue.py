"""The queue carries hints: look at this token. It may lose, double and reorder them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from rune.core.token import Token


class Delivery(msgspec.Struct, frozen=True):
    """One hint in somebody's hands until it is acknowledged."""

    execution: str
    token: Token
    tag: int = 0
    again: bool = False


class Queue(Protocol):
    """Hints from whoever has work to whoever has a free slot."""

    async def send(self, execution: str, tokens: Sequence[Token], priority: int = 5) -> None:
        """Hand over hints."""

    async def receive(self) -> Delivery:
        """Wait for a hint."""

    async def ack(self, delivery: Delivery) -> None:
        """The hint has served."""

    async def give_back(self, delivery: Delivery, delay: float = 0.0) -> None:
        """Somebody else, or later."""

    async def close(self) -> None:
        """Take nothing more; what was taken and handed to nobody is for others."""
