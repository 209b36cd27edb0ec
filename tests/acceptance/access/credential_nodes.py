"""A node that uses a credential."""

from __future__ import annotations

from typing import Any

from rune.nodes.custom import NodeContext, node


@node("access.use", credentials=True)
async def use(ctx: NodeContext) -> dict[str, Any]:
    """Load the credential and return its name."""
    credential = await ctx.credential()
    assert credential is not None
    return {"used": credential.name}
