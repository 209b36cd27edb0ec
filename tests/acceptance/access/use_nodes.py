"""A node that logs in somewhere."""

from __future__ import annotations

from typing import Any

from rune.nodes.custom import NodeContext, node


@node("access.use", credentials=True)
async def use(ctx: NodeContext) -> dict[str, Any]:
    """Uses the credential that it names."""
    credential = await ctx.credential()
    assert credential is not None
    return {"used": credential.name}
