"""The leases this worker holds, renewed while their nodes run."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from rune.core.execution.token import Path, Token
from rune.ports.journal import StoreUnavailableError
from rune.ports.state import Fence, State

log = logging.getLogger("rune.leases")

RENEWAL_INTERVAL_S = 3.0  # a lease lasts three times as long

Key = tuple[str, int, Path]


class Leases:
    """Renews held leases. When a renewal fails the lease is lost, and the task that runs its node is cancelled."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._held: dict[Key, Fence] = {}
        self._running: dict[Key, asyncio.Task[Any]] = {}
        self._lost: set[Key] = set()
        self.in_thread = False
        """Whether a thread renews the leases, so that no loop of the engine has to."""

    def held(self) -> list[tuple[Key, Fence]]:
        """Return the held leases. May be called in any thread."""
        return list(self._held.copy().items())

    def hold(self, execution: str, token: Token, fence: Fence) -> None:
        self._held[(execution, token.node, token.path)] = fence

    def release(self, execution: str, token: Token, fence: Fence) -> None:
        """Stop renewing the lease, unless the token was claimed again under another fence."""
        key = (execution, token.node, token.path)
        if self._held.get(key) == fence:
            del self._held[key]

    def attach_task(self, execution: str, token: Token) -> Key:
        """Register the current task to be cancelled if the lease of this token is lost."""
        key = (execution, *token.key)
        task = asyncio.current_task()
        assert task is not None
        self._running[key] = task
        return key

    def detach_task(self, key: Key) -> bool:
        """Unregister the task. Return whether it was cancelled because of a lost lease and for no other reason."""
        task = self._running.pop(key, None)
        if key not in self._lost:
            return False
        self._lost.discard(key)
        return task is not None and task.uncancel() == 0

    async def renew(self) -> None:
        held = self.held()
        renewed = await asyncio.gather(*(self._state.renew(*key, fence) for key, fence in held))
        for (key, fence), still_held in zip(held, renewed, strict=True):
            if not still_held:
                self.lose(key, fence)

    def lose(self, key: Key, fence: Fence) -> None:
        """Cancel the task of a lease that could not be renewed, unless it was released or claimed again meanwhile."""
        if self._held.get(key) != fence:
            return
        del self._held[key]
        task = self._running.get(key)
        if task is not None:
            self._lost.add(key)
            task.cancel()

    async def run(self) -> None:
        """Renew until cancelled. Used by a process without a scheduler and without a thread, which otherwise renew."""
        while True:
            await asyncio.sleep(RENEWAL_INTERVAL_S)
            try:
                await self.renew()
            except StoreUnavailableError as error:
                log.warning("store unavailable, leases are not renewed: %s", error.message)
            except Exception:
                log.exception("renewing leases failed")
