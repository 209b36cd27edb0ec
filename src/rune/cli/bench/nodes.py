"""The custom nodes of the jobs: as little as a node can do, so that what is measured is the engine."""

from __future__ import annotations

from rune.errors import NodeFailure
from rune.nodes.custom import NodeContext, node


@node("bench.add_async")
async def add_async(value: int) -> int:
    """Adds one in the event loop."""
    return value + 1


@node("bench.add")
def add(value: int) -> int:
    """Adds one in a thread."""
    return value + 1


@node("bench.add_after_failure")
async def add_after_failure(ctx: NodeContext, value: int) -> int:
    """Adds one in its second attempt; the first one fails."""
    if ctx.attempt == 1:
        raise NodeFailure("the first attempt fails")
    return value + 1
