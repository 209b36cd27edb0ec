"""For tests of custom nodes: a context without an engine.

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
    """A blob store that lasts as long as the test."""

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}

    async def put(self, key: str, data: bytes) -> None:
        """Keep bytes."""
        self.kept[key] = bytes(data)

    async def get(self, key: str) -> bytes | None:
        """The bytes, or None."""
        return self.kept.get(key)

    async def delete(self, execution: str) -> int:
        """Drop every blob of an execution."""
        gone = [key for key in self.kept if key.partition("/")[0] == execution]
        for key in gone:
            del self.kept[key]
        return len(gone)


class Context(NodeContext):
    """A context that notes what it was told: `reported` is the progress, in order."""

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
    """A context for one call of a decorated function. With a `loop`, functions in other threads may `wait`."""
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
