"""What a process has to renew while it works, over connections of its own.

A node can block the event loop that runs it. Leases, deliveries and the entry in the process registry are therefore
renewed in another thread, with connections that belong to the event loop of that thread.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from rune.core.execution.token import Path
from rune.ports.processes import ProcessRegistry
from rune.ports.state import Fence


class Keepalive(Protocol):
    """Renews what this process holds. Used in one thread only."""

    processes: ProcessRegistry

    async def renew_lease(self, execution: str, node: int, path: Path, fence: Fence) -> bool:
        """Extend a lease, as `State.renew` does."""

    async def renew_deliveries(self) -> None:
        """Tell the queue that the deliveries of this process are still being processed."""


OpenKeepalive = Callable[[], AbstractAsyncContextManager[Keepalive]]
"""Opens the connections, in the event loop of the thread that will use them."""
