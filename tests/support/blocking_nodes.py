"""A node type that blocks the event loop for good, as a defect of the engine or of an extension does."""

from __future__ import annotations

from rune.nodes.custom import node


@node("block.loop")
async def block() -> None:
    """Never return, and never let another task run."""
    while True:
        pass
