"""Renews leases, stream entries and the process registry over a connection of its own, in any thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rune.adapters.redis.client import Client
from rune.adapters.redis.encoding import encode_path
from rune.adapters.redis.keys import KeySpace
from rune.adapters.redis.processes import RedisProcessRegistry
from rune.adapters.redis.streams import Entry, Streams
from rune.core.execution.token import Path
from rune.ports.processes import ProcessRegistry
from rune.ports.state import Fence

HeldEntries = Callable[[], Sequence[Entry]]
"""Returns the stream entries that this process holds. Called in the thread of the keepalive."""


class RedisKeepalive:
    """Renews what a process holds on one server."""

    def __init__(
        self, client: Client, keys: KeySpace, streams: Streams | None = None, held: HeldEntries | None = None
    ) -> None:
        """With `streams`, the entries that `held` returns are renewed as deliveries."""
        self._client = client
        self._keys = keys
        self._streams = streams
        self._held = held
        self.processes: ProcessRegistry = RedisProcessRegistry(client, keys)

    async def renew_lease(self, execution: str, node: int, path: Path, fence: Fence) -> bool:
        keys = self._keys.of(execution)
        return bool(await self._client.run("renew", keys, 0, execution, node, encode_path(path), fence[1]))

    async def renew_deliveries(self) -> None:
        if self._streams is not None and self._held is not None:
            await self._streams.renew(self._held())
