"""The leases that a worker holds: they are renewed while their nodes run."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

from rune.core.execution.token import Path, Token
from rune.ports.journal import StoreUnavailableError
from rune.ports.state import LEASE_MS, RENEWAL_MS, Fence, State

log = logging.getLogger("rune.leases")

RENEWAL_S = RENEWAL_MS / 1000
LEASE_S = LEASE_MS / 1000
"""How long a worker that hears nothing from the store may rely on its lease. It counts from the moment at which the
worker asked, because the store may have answered at once and the answer may have taken long."""

Key = tuple[str, int, Path]


class LeaseLapsedError(Exception):
    """The lease of a token may be over before its node has begun: another worker may run it."""


class _Lease:
    """A held lease and the monotonic time until which the worker may rely on it."""

    __slots__ = ("fence", "until")

    def __init__(self, fence: Fence, until: float) -> None:
        self.fence = fence
        self.until = until


class Leases:
    """Renews held leases. When a renewal fails the lease is lost, and the task that runs its node is cancelled."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._held: dict[Key, _Lease] = {}
        self._running: dict[Key, asyncio.Task[Any]] = {}
        self._lost: set[Key] = set()
        self._rechecks: dict[Key, asyncio.Task[None]] = {}
        self.in_thread = False
        """Whether a thread renews the leases, so that no loop of the engine has to."""

    def held(self) -> list[tuple[Key, Fence]]:
        """Return the held leases. May be called in any thread."""
        return [(key, lease.fence) for key, lease in self._held.copy().items()]

    def hold(self, execution: str, token: Token, fence: Fence, asked: float) -> None:
        """Renew a lease from now on that the worker asked for at `asked` (monotonic)."""
        self._held[(execution, token.node, token.path)] = _Lease(fence, asked + LEASE_S)

    def renewed(self, key: Key, fence: Fence, asked: float) -> None:
        """Note that the store has extended a lease. May be called in any thread."""
        lease = self._held.get(key)
        if lease is not None and lease.fence == fence:
            lease.until = asked + LEASE_S

    def check(self, execution: str, token: Token) -> None:
        """Raise unless the lease of a token is certainly held now. Called last before its node runs."""
        lease = self._held.get((execution, token.node, token.path))
        if lease is None or time.monotonic() >= lease.until:
            raise LeaseLapsedError("the lease of the token may be over before its node runs")

    def release(self, execution: str, token: Token, fence: Fence) -> None:
        """Stop renewing the lease, unless the token was claimed again under another fence."""
        key = (execution, token.node, token.path)
        lease = self._held.get(key)
        if lease is not None and lease.fence == fence:
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
        leases, asked = self.held(), time.monotonic()
        renewed = await asyncio.gather(*(self._state.renew(*key, fence) for key, fence in leases))
        for (key, fence), still_held in zip(leases, renewed, strict=True):
            if still_held:
                self.renewed(key, fence, asked)
            else:
                self.lose(key, fence)

    def recheck(self, key: Key, fence: Fence) -> None:
        """Renew a lease that the thread could not renew once more, from the event loop of the engine, which can rebuild
        a state that was lost."""
        if key not in self._rechecks:
            self._rechecks[key] = asyncio.create_task(self._recheck(key, fence))

    async def _recheck(self, key: Key, fence: Fence) -> None:
        asked = time.monotonic()
        try:
            if await self._state.renew(*key, fence):
                self.renewed(key, fence, asked)
            else:
                self.lose(key, fence)
        except StoreUnavailableError as error:
            log.warning("store unavailable, a lease is not renewed: %s", error.message)
        except Exception:
            log.exception("renewing a lease failed")
        finally:
            del self._rechecks[key]

    def lose(self, key: Key, fence: Fence) -> None:
        """Cancel the task of a lease that could not be renewed, unless it was released or claimed again meanwhile."""
        lease = self._held.get(key)
        if lease is None or lease.fence != fence:
            return
        del self._held[key]
        task = self._running.get(key)
        if task is not None:
            self._lost.add(key)
            task.cancel()

    async def run(self) -> None:
        """Renew until cancelled. Used by a process without a scheduler and without a thread, which otherwise renew."""
        while True:
            await asyncio.sleep(RENEWAL_S)
            try:
                await self.renew()
            except StoreUnavailableError as error:
                log.warning("store unavailable, leases are not renewed: %s", error.message)
            except Exception:
                log.exception("renewing leases failed")
