"""Isolation: a token whose worker has died several times runs while no other node runs in this process.

When a process dies, any of the nodes that ran in it may be the cause, and the claim of each of them counts. A long node
would be given up together with one beside it that kills every worker. So a token whose worker has died SUSPECT_CRASHES
times runs alone: whatever dies then is its own fault. Such tokens are counted one after the other, because a process
that dies at once must not count against those that have not begun.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

SUSPECT_CRASHES = 3
MAX_ALONE_S = 60.0
"""How long a token waits until it is alone, and how long it stays so: a node that kills its worker does so soon, and
work that has nothing to do with it must go on."""


class Isolation:
    """The nodes with effects that run in this process, and the token that runs alone."""

    def __init__(self, max_alone_s: float = MAX_ALONE_S) -> None:
        self._max_alone_s = max_alone_s
        self._running = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._open = asyncio.Event()
        self._open.set()
        self.turn = asyncio.Lock()
        """Held by the token that runs alone."""

    @property
    def is_open(self) -> bool:
        """Whether no token runs alone or waits for that."""
        return self._open.is_set()

    async def opened(self) -> None:
        """Wait until nodes may begin."""
        await self._open.wait()

    def begin(self) -> None:
        """Count a node that begins."""
        self._running += 1
        self._idle.clear()

    def end(self) -> None:
        """Count a node that has ended."""
        self._running -= 1
        if not self._running:
            self._idle.set()

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """Run the block, whose task holds `turn`, while no other node runs. Both the wait and the isolation end after
        a while. Give the turn back."""
        held = True

        def release_turn() -> None:
            nonlocal held
            if held:
                held = False
                self._open.set()
                self.turn.release()

        self._open.clear()
        timer: asyncio.TimerHandle | None = None
        try:
            # Nodes that have run for so long are not more likely to die with this one than with any other.
            with suppress(TimeoutError):
                async with asyncio.timeout(self._max_alone_s):
                    await self._idle.wait()
            timer = asyncio.get_running_loop().call_later(self._max_alone_s, release_turn)
            self.begin()
            try:
                yield
            finally:
                self.end()
        finally:
            if timer is not None:
                timer.cancel()
            release_turn()
