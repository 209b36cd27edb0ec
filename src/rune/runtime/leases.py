"""Leases: the tokens this worker holds, renewed while they run."""

from __future__ import annotations

import asyncio

from rune.core.lineage import Path
from rune.core.outcome import Outcome
from rune.core.token import Token
from rune.ports.state import Fence, State


class Leases:
    """What is held here. A lease that cannot be renewed is lost: its node is told by cancelling what it waits for."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._held: dict[tuple[str, int, Path], Fence] = {}
        self._running: dict[tuple[str, int, Path], asyncio.Future[Outcome]] = {}

    def hold(self, execution: str, token: Token, fence: Fence) -> None:
        """A token was claimed under this fence."""
        self._held[(execution, *token.key)] = fence

    def release(self, execution: str, token: Token, fence: Fence) -> None:
        """It is done, or somebody else's."""
        key = (execution, *token.key)
        if self._held.get(key) == fence:
            del self._held[key]

    def follow(self, execution: str, token: Token, run: asyncio.Future[Outcome]) -> None:
        """What to cancel if the lease is lost."""
        key = (execution, *token.key)
        self._running[key] = run
        run.add_done_callback(lambda done: self._running.pop(key, None))

    async def renew(self) -> None:
        """Prolong everything that is held."""
        for (execution, node, path), fence in list(self._held.items()):
            if not await self._state.renew(execution, node, path, fence):
                self._held.pop((execution, node, path), None)
                run = self._running.pop((execution, node, path), None)
                if run is not None:
                    run.cancel()
