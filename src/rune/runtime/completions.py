"""Completions: who waits for the end of which execution."""

from __future__ import annotations

import asyncio
from collections.abc import Set

from rune.core.fact import End


class Completions:
    """Announces each end once to everybody who waits for it here."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[asyncio.Future[End]]] = {}

    def expect(self, execution: str) -> asyncio.Future[End]:
        """A future end."""
        future: asyncio.Future[End] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(execution, []).append(future)
        return future

    @property
    def awaited(self) -> Set[str]:
        """Executions whose end somebody here waits for."""
        return self._waiting.keys()

    def announce(self, execution: str, end: End) -> None:
        """Tell whoever waits."""
        for future in self._waiting.pop(execution, ()):
            if not future.done():
                future.set_result(end)
