"""The context of a custom node: what its function may know of its run, and what it may ask for."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from rune.errors import NodeFailure
from rune.nodes.base import Call, Level
from rune.nodes.blobs import Blobs

T = TypeVar("T")


class NodeContext:
    """One run of a custom node.

    `node` is its id, `payload` what entered it, `attempt` which try this is (from 1), `now` the time of the
    execution in epoch milliseconds. `idempotency_key` names the effect: the same in every attempt, so that whoever is
    called can tell a repetition; empty if the node wants none. `traceparent` is the W3C trace context to send along
    with calls to others; empty where nobody traces.
    """

    def __init__(self, call: Call[Any], loop: asyncio.AbstractEventLoop | None = None) -> None:
        self.node = call.node
        self.payload = call.payload
        self.attempt = call.attempt
        self.now = call.now
        self.idempotency_key = call.idempotency_key
        self.traceparent = call.traceparent
        self._call = call
        self._loop = loop
        self._cancelled = False

    @property
    def blob(self) -> Blobs:
        """Keeps bytes that are too large or too binary to return: `put(data, name, content_type)` gives a reference
        that can be part of the output, `get(reference)` the bytes. Both are awaited."""
        return self._call.blobs

    @property
    def cancelled(self) -> bool:
        """Whether nobody waits for this run any more: it took too long, its execution has ended, or the worker stops.
        A function without `await` cannot be interrupted; it may look here between two steps and return."""
        return self._cancelled

    def progress(self, what: float | str) -> None:
        """Tell whoever looks on how far it is: a share between 0 and 1, or a few words. Nothing is kept of it."""
        self._call.progress(what)

    def log(self, message: str, *, level: Level = "info", **fields: Any) -> None:
        """Write a line to the log of the worker, with the node and its execution beside it."""
        self._call.log(message, level=level, **fields)

    async def credential(self) -> Any:
        """The credential that the node names, resolved at this moment; None if it names none."""
        return await self._call.credential()

    def wait(self, asked: Coroutine[Any, Any, T]) -> T:
        """For functions without `await`: `ctx.wait(ctx.blob.get(reference))` blocks the thread until it is there."""
        if self._loop is None or self._cancelled:
            asked.close()
            if self._cancelled:
                raise NodeFailure("nobody waits for this run any more", code="CANCELLED")
            raise RuntimeError(
                "only a function that runs in a thread can wait so; elsewhere there is `await`"
            )
        return asyncio.run_coroutine_threadsafe(asked, self._loop).result()

    def abandon(self) -> None:
        """From now on `cancelled` is true."""
        self._cancelled = True
