"""Node types of Acme: one that computes, one that waits, one that blocks."""

from __future__ import annotations

import hashlib
import re
from typing import Annotated, Any, Literal

from msgspec import Meta

from rune.errors import NodeFailure
from rune.nodes.custom import NodeContext, node

PIECE = 64 * 1024


@node("acme.slug", effectful=False, errors={"ACME_NO_SLUG": "nothing of the text is left"})
def slug(
    text: Annotated[str, Meta(description="Any text.")],
    longest: Annotated[int, Meta(ge=1, le=200, description="Characters to keep.")] = 60,
) -> str:
    """Makes a text fit for an address.

    Letters and digits stay, everything between them becomes one hyphen.
    """
    found = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:longest].rstrip("-")
    if not found:
        raise NodeFailure(f"nothing of {text!r} can stand in an address", code="ACME_NO_SLUG")
    return found


@node("acme.document")
async def document(
    ctx: NodeContext,
    title: Annotated[str, Meta(description="First line.")],
    lines: Annotated[list[str], Meta(description="The lines below.")],
) -> dict[str, Any]:
    """Writes a text file and gives back a reference to it, not its bytes."""
    ctx.log("writing", lines=len(lines))
    text = "\n".join([title, "=" * len(title), "", *lines, ""])
    return await ctx.blob.put(text.encode(), f"{slug(title)}.txt", "text/plain")


@node("acme.checksum", errors={"ACME_STOPPED": "nobody waits for the result any more"})
def checksum(
    ctx: NodeContext,
    file: Annotated[dict[str, Any], Meta(description="Reference to a file, as another node gave it.")],
    algorithm: Annotated[Literal["sha256", "blake2b"], Meta(description="How to compute it.")] = "sha256",
) -> dict[str, Any]:
    """Computes the checksum of a file.

    There is no `await` in it, so it runs in a thread and holds up nobody. Between two pieces it says how far it is and
    looks whether it should stop.
    """
    data = ctx.wait(ctx.blob.get(file))
    digest = hashlib.new(algorithm)
    for at in range(0, len(data), PIECE):
        if ctx.cancelled:
            raise NodeFailure("stopped before the end", code="ACME_STOPPED")
        digest.update(data[at : at + PIECE])
        ctx.progress((at + PIECE) / len(data))
    return {"algorithm": algorithm, "checksum": digest.hexdigest(), "size": len(data)}
