"""Leases: the tokens this worker holds, renewed while they run."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from rune.core.execution.token import Path, Token
from rune.ports.journal import StoreUnavailableError
from rune.ports.state import Fence, State

log = logging.getLogger("rune.leases")

RENEWAL = 3.0
"""Seconds between two renewals; a lease lasts three times as long."""

Key = tuple[str, int, Path]


class Leases:
    """What is held here. A lease that cannot be renewed is lost: its node is told by cancelling what it waits for."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._held: dict[Key, Fence] = {}
        self._running: dict[Key, asyncio.Task[Any]] = {}
        self._lost: set[Key] = set()

    def hold(self, execution: str, token: Token, fence: Fence) -> None:
        """A token was claimed under this fence."""
        self._held[(execution, token.node, token.path)] = fence

    def release(self, execution: str, token: Token, fence: Fence) -> None:
        """It is done, or somebody else's."""
        key = (execution, token.node, token.path)
        if self._held.get(key) == fence:
            del self._held[key]

    def follow(self, execution: str, token: Token) -> Key:
        """A node begins to run here: it is what to cancel if the lease is lost."""
        key = (execution, *token.key)
        here = asyncio.current_task()
        assert here is not None
        self._running[key] = here
        return key

    def left(self, key: Key) -> bool:
        """The node runs no more. Whether that was because its lease was lost, and nothing else wants to stop it."""
        here = self._running.pop(key, None)
        if key not in self._lost:
            return False
        self._lost.discard(key)
        return here is not None and here.uncancel() == 0

    async def renew(self) -> None:
        """Prolong everything that is held."""
        held = list(self._held.items())
        proven = await asyncio.gather(*(self._state.renew(*key, fence) for key, fence in held))
        for (key, fence), still in zip(held, proven, strict=True):
            if not still and self._held.get(key) == fence:
                self._lose(key)

    def _lose(self, key: Key) -> None:
        del self._held[key]
        running = self._running.get(key)
        if running is not None:
            self._lost.add(key)
            running.cancel()

    async def run(self) -> None:
        """Renew until cancelled: for a process whose scheduler does not."""
        while True:
            await asyncio.sleep(RENEWAL)
            try:
                await self.renew()
            except StoreUnavailableError as away:
                log.warning("the store is away, leases are not renewed: %s", away.message)
            except Exception:
                log.exception("renewing leases failed")
