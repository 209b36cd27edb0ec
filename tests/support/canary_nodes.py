"""Nodes that leak their credential in every possible way."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from rune.nodes.custom import NodeContext, node
from rune.ports.credentials import Custom

log = logging.getLogger("acme.shop")


async def _password(ctx: NodeContext) -> str:
    credential = await ctx.credential()
    assert credential is not None
    assert isinstance(credential.fields, Custom)
    return credential.fields.values["password"]


@node("canary.tell", credentials=True)
async def tell(ctx: NodeContext) -> dict[str, Any]:
    """Put the password into logs, progress, a blob and the output."""
    value = await _password(ctx)
    ctx.log(f"the password is {value}", level="warning", password=value, beside=value)
    log.warning("it is %s", value)
    log.error("once more", exc_info=RuntimeError(value))
    ctx.progress(f"logging in with {value}")
    reference = await ctx.blob.put(f"notes: {value}".encode(), "notes.txt")
    return {"value": value, value: [value], "notes": reference}


@node("canary.fail", credentials=True)
async def fail(ctx: NodeContext) -> dict[str, Any]:
    """Put the password into the errors of a background task and of the node."""
    value = await _password(ctx)

    async def background() -> None:
        raise RuntimeError(f"in the background: {value}")

    await asyncio.wait(
        [asyncio.create_task(background())]
    )  # its exception is not retrieved, so that the event loop logs it
    raise RuntimeError(f"cannot log in with {value}")
