"""Following: somebody who is told what happens, for as long as they stay."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator

from rune.master.live.watch import Told


class Following(ABC):
    """Wakes up for news, for a sign of life that is due, and to go."""

    def __init__(self) -> None:
        self.news = asyncio.Event()
        self.gone = False
        self._reminded = False

    def leave(self, *_: object) -> None:
        """Whoever followed has gone."""
        self.gone = True
        self.news.set()

    def remind(self) -> None:
        """A sign of life is due."""
        self._reminded = True
        self.news.set()

    @abstractmethod
    def pieces(self) -> AsyncGenerator[list[Told] | bytes | None, None]:
        """What is to be sent, piece by piece: events, or bytes of them; None where only a sign of life is due."""
