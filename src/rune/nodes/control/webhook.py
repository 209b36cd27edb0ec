"""`webhook`: an HTTP request starts an execution."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from rune.core.outcome import Outcome, Output
from rune.nodes.base import Call
from rune.nodes.declare import Model, declare


class Parameters(Model, kw_only=True, frozen=True):
    """Where the hook listens and whom it trusts."""

    path: Annotated[
        str | None,
        Meta(
            description="Last part of the hook's address. Default: an unguessable one, made at publication."
        ),
    ] = None
    method: Annotated[
        Literal["GET", "POST", "PUT", "PATCH", "DELETE"], Meta(description="The request method that starts.")
    ] = "POST"
    auth: Annotated[
        Literal["none", "header", "hmac"],
        Meta(
            description="How a caller proves itself: not at all, by a secret header, or by a signature over "
            "timestamp "
            "and body. The secret comes from the node's credentials."
        ),
    ] = "none"


TYPE = declare(
    "webhook",
    Parameters,
    kinds={"path": "literal", "method": "literal", "auth": "literal"},
    summary="Starts an execution for each HTTP request.",
    doc="Every published version registers its hook. The request becomes the start payload.",
    output="`{method, headers, query, body}` of the request.",
    trigger=True,
    credentials=True,
)


def run(call: Call[Parameters]) -> Outcome:
    """The start payload, as it came."""
    return Output(call.payload)
