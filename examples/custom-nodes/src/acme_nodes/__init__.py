"""Node types of Acme: a pure one, an asynchronous one, and a blocking one."""

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
    longest: Annotated[int, Meta(ge=1, le=200, description="Maximum length in characters.")] = 60,
) -> str:
    """Converts a text to a URL slug.

    Letters and digits are kept, everything else becomes a single hyphen.
    """
    found = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:longest].rstrip("-")
    if not found:
        raise NodeFailure(f"nothing of {text!r} can be used in a URL", code="ACME_NO_SLUG")
    return found


@node("acme.document")
async def document(
    ctx: NodeContext,
    title: Annotated[str, Meta(description="First line.")],
    lines: Annotated[list[str], Meta(description="The lines below.")],
) -> dict[str, Any]:
    """Stores a text file and returns a reference to it."""
    ctx.log("writing", lines=len(lines))
    text = "\n".join([title, "=" * len(title), "", *lines, ""])
    return await ctx.blob.put(text.encode(), f"{slug(title)}.txt", "text/plain")


@node("acme.checksum", errors={"ACME_STOPPED": "the run was cancelled"})
def checksum(
    ctx: NodeContext,
    file: Annotated[dict[str, Any], Meta(description="Reference to a file from another node.")],
    algorithm: Annotated[Literal["sha256", "blake2b"], Meta(description="Hash algorithm.")] = "sha256",
) -> dict[str, Any]:
    """Computes the checksum of a file.

    The function is synchronous, so it runs in a thread and does not block the worker. After each piece it reports its
    progress and checks whether it was cancelled.
    """
    data = ctx.wait(ctx.blob.get(file))
    digest = hashlib.new(algorithm)
    for at in range(0, len(data), PIECE):
        if ctx.cancelled:
            raise NodeFailure("stopped before the end", code="ACME_STOPPED")
        digest.update(data[at : at + PIECE])
        ctx.progress((at + PIECE) / len(data))
    return {"algorithm": algorithm, "checksum": digest.hexdigest(), "size": len(data)}
