"""The `webhook` node: starts an execution for each HTTP request."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from rune.core.definition.problems import Problem
from rune.core.execution.outcome import Outcome, Output
from rune.core.webhooks import DELIVERY, WebhookConfig
from rune.nodes.base import NodeCall
from rune.nodes.schema import Model, conflicting, declare

_PATH = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}")


class Parameters(Model, kw_only=True, frozen=True):
    """Address, authentication and response of the webhook."""

    path: Annotated[
        str | None,
        Meta(
            description="Last path segment of the webhook URL. Default: a random one, generated at publication."
        ),
    ] = None
    method: Annotated[
        Literal["GET", "POST", "PUT", "PATCH", "DELETE"], Meta(description="Accepted request method.")
    ] = "POST"
    auth: Annotated[
        Literal["none", "header", "hmac"],
        Meta(
            description="How callers authenticate: not at all, with a secret header, or with a signature over "
            "timestamp and body. The secret comes from the node's credential or is generated for the trigger."
        ),
    ] = "none"
    window: Annotated[
        Annotated[int, Meta(ge=1, le=86_400)], Meta(description="Seconds a signature is valid.")
    ] = 300
    delivery_header: Annotated[
        str | None,
        Meta(
            description="Header that identifies a delivery; a repeated delivery does not start another execution. "
            "Default: X-Delivery-Id, Idempotency-Key or X-GitHub-Delivery."
        ),
    ] = None
    respond: Annotated[
        Literal["accepted", "result"],
        Meta(description="Respond once the start is durable, or once the execution has ended."),
    ] = "accepted"
    wait: Annotated[
        Annotated[float, Meta(gt=0, le=300)],
        Meta(description="Seconds `respond: result` waits before responding like `accepted`."),
    ] = 30
    max_bytes: Annotated[
        Annotated[int, Meta(ge=1, le=32 * 1024 * 1024)], Meta(description="Maximum body size in bytes.")
    ] = 1024 * 1024


def _combined(parameters: Mapping[str, Any]) -> list[Problem]:
    found: list[Problem] = []
    path, header = parameters.get("path"), parameters.get("delivery_header")
    if path is not None and not _PATH.fullmatch(path):
        found.append(
            conflicting(
                "path",
                f"`{path[:80]}` is not a valid path segment",
                "use up to 128 letters, digits, `.`, `_` and `-`",
            )
        )
    if header is not None and not _HEADER.fullmatch(header):
        found.append(
            conflicting(
                "delivery_header", f"`{header[:80]}` is not a header name", "for example `X-Delivery-Id`"
            )
        )
    return found


def _starts(parameters: Mapping[str, Any]) -> WebhookConfig:
    given = msgspec.convert(parameters, Parameters)
    return WebhookConfig(
        path=given.path,
        method=given.method,
        auth=given.auth,
        window=given.window,
        delivery=DELIVERY if given.delivery_header is None else (given.delivery_header.lower(),),
        respond=given.respond,
        wait=given.wait,
        max_bytes=given.max_bytes,
    )


TYPE = declare(
    "webhook",
    Parameters,
    kinds=dict.fromkeys(Parameters.__struct_fields__, "literal"),
    extra=_combined,
    summary="Starts an execution for each HTTP request.",
    doc="Each published version registers its webhook. The request becomes the start payload.",
    output="`{method, headers, query, body}` of the request.",
    trigger=True,
    starts=_starts,
    credentials=True,
)


def run(call: NodeCall[Parameters]) -> Outcome:
    return Output(call.payload)
