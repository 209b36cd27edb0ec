"""Nodes that fail, talk and tell where they ran."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from rune.errors import NodeFailure
from rune.nodes.custom import NodeContext, node

SAID = "mind the step"


@node("tele.where")
async def where(ctx: NodeContext) -> dict[str, Any]:
    """The process that ran it, and the trace it belongs to."""
    return {"pid": os.getpid(), "traceparent": ctx.traceparent}


class Gate:
    """For nodes in the process of the test: whoever holds may go once it is open. An event belongs to one loop."""

    opened = asyncio.Event()


@node("tele.holds")
async def holds() -> None:
    """Keeps its slot."""
    await Gate.opened.wait()


@node("tele.flaky")
async def flaky(ctx: NodeContext, times: int = 1) -> int:
    """Fails so often, then tells at which attempt it did not."""
    if ctx.attempt <= times:
        raise NodeFailure("not yet", code="FLAKY")
    return ctx.attempt


@node("tele.talks")
async def talks(ctx: NodeContext) -> str:
    """Says something, with what nobody may see in it."""
    credential = await ctx.credential()
    secret = "" if credential is None else credential.fields.value
    ctx.log(SAID, level="warning", path="/a", password="hunter22-hunter22", sent=f"value {secret}")
    return "said"
