"""Custom nodes of the telemetry tests."""

from __future__ import annotations

import asyncio
import os
import threading
from typing import Any

from rune.errors import NodeFailure
from rune.nodes.custom import NodeContext, node

MESSAGE = "hello from a node"


@node("tele.where")
async def where(ctx: NodeContext) -> dict[str, Any]:
    """Returns the process id and the trace."""
    return {"pid": os.getpid(), "traceparent": ctx.traceparent}


class Gate:
    """Blocks nodes in the process of the test until it is opened; set a new event per event loop."""

    opened = asyncio.Event()


@node("tele.holds")
async def holds() -> None:
    """Blocks its slot until the gate is opened."""
    await Gate.opened.wait()


@node("tele.block")
async def block_the_loop(seconds: float) -> None:
    """Blocks the event loop."""
    threading.Event().wait(seconds)  # not awaited: blocking the loop is the purpose


@node("tele.flaky")
async def flaky(ctx: NodeContext, times: int = 1) -> int:
    """Fails the given number of times, then returns the attempt."""
    if ctx.attempt <= times:
        raise NodeFailure("not yet", code="FLAKY")
    return ctx.attempt


@node("tele.talks")
async def talks(ctx: NodeContext) -> str:
    """Logs a message with secrets in its fields."""
    credential = await ctx.credential()
    secret = "" if credential is None else credential.fields.value
    ctx.log(MESSAGE, level="warning", path="/a", password="hunter22-hunter22", sent=f"value {secret}")
    return "logged"
