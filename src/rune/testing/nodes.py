"""A node context without an engine, for tests of custom nodes.

ctx = context(payload={"n": 1})
assert await score(ctx, "c7") == {"score": 2}
assert ctx.reported == ["half"]
"""

from __future__ import annotations

import asyncio
from typing import Any

from rune.nodes.base import NodeCall
from rune.nodes.blobs import Blobs
from rune.nodes.custom import NodeContext


class MemoryBlob:
    """An in-memory blob store."""

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}

    async def put(self, key: str, data: bytes) -> None:
        self.kept[key] = bytes(data)

    async def get(self, key: str) -> bytes | None:
        return self.kept.get(key)

    async def delete(self, execution: str) -> int:
        """Delete the blobs of an execution and return how many there were."""
        keys = [key for key in self.kept if key.partition("/")[0] == execution]
        for key in keys:
            del self.kept[key]
        return len(keys)


class Context(NodeContext):
    """A context that records progress in `reported`, in order."""

    def __init__(self, call: NodeCall[Any], loop: asyncio.AbstractEventLoop | None = None) -> None:
        super().__init__(call, loop)
        self.reported: list[float | str] = []
        call.progress = self.reported.append


def context(
    payload: Any = None,
    *,
    node: str = "node",
    attempt: int = 1,
    now: int = 0,
    idempotency_key: str = "test:node@/",
    loop: asyncio.AbstractEventLoop | None = None,
) -> Context:
    """Return a context for one call of a decorated function. With `loop`, functions in other threads may `wait`."""
    call: NodeCall[Any] = NodeCall(
        None,
        {"$json": payload},
        now=now,
        node=node,
        attempt=attempt,
        idempotency_key=idempotency_key,
        blobs=Blobs(MemoryBlob(), "test"),
    )
    return Context(call, loop)
