"""`http`: a request and its answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import cache
from typing import Annotated, Any, Literal

from msgspec import Meta, field

from rune.core.execution.outcome import Outcome, Output
from rune.nodes.base import NodeCall
from rune.nodes.credentials import CREDENTIAL_ERRORS
from rune.nodes.io.http_client.pagination import Pagination, combined
from rune.nodes.schema import Model, Scalar, declare

BodyType = Literal["auto", "json", "form", "multipart", "text", "binary"]
Wanted = Literal["auto", "json", "text", "blob"]
Values = dict[str, Scalar | list[Scalar]]


class Parameters(Model, kw_only=True, frozen=True):
    """The request, and what counts as success."""

    url: Annotated[str, Meta(min_length=1, description="Address, `http` or `https`.")]
    method: Annotated[
        Literal["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"],
        Meta(description="Request method."),
    ] = "GET"
    query: Annotated[
        Values, Meta(description="Added to the address; a list repeats its name, null leaves it out.")
    ] = field(default_factory=dict)
    headers: Annotated[Values, Meta(description="Request headers; null leaves one out.")] = field(
        default_factory=dict
    )
    body: Annotated[
        Any,
        Meta(
            description="Text as it is, a reference to a blob as its bytes, anything else as JSON; an object as a "
            "form if the Content-Type says so. Default: none."
        ),
    ] = None
    body_type: Annotated[
        BodyType,
        Meta(
            description="How `body` is sent. `multipart`: an object of values and files, which are references to blobs "
            "or `{filename, content}`. `binary`: a reference, or text in base64. Default: as it looks."
        ),
    ] = "auto"
    response: Annotated[
        Wanted,
        Meta(
            description="What becomes of the answer's body. `auto`: JSON and text up to 10 MiB are values, all else is "
            "a reference to a blob."
        ),
    ] = "auto"
    retry: Annotated[
        Annotated[int, Meta(ge=0, le=100)] | None,
        Meta(description="Further tries after a failed one. The node's own `retry` wins."),
    ] = None
    retry_delay: Annotated[
        Annotated[float, Meta(ge=0)] | None,
        Meta(description="Seconds between tries. The node's own `retry` wins."),
    ] = None
    follow_next: Annotated[
        Annotated[int, Meta(ge=0, le=1_000)] | bool,
        Meta(
            description='Fetch so many further pages that a `Link: …; rel="next"` header names; true: up to '
            "100. The body is then all lists in one, or a list of the bodies."
        ),
    ] = False
    pagination: Annotated[
        Pagination | None, Meta(description="How further pages are found. Default: there are none.")
    ] = None
    timeout: Annotated[float, Meta(gt=0, description="Seconds for the whole exchange.")] = 30
    raise_on_status: Annotated[
        Annotated[str, Meta(pattern=r"^\s*[1-5](xx|XX|[0-9]{2})(\s*,\s*[1-5](xx|XX|[0-9]{2}))*\s*$")]
        | Annotated[int, Meta(ge=100, le=599)]
        | None,
        Meta(description="Statuses that fail the node, such as `4xx,5xx` or `404`. Default: none does."),
    ] = None
    ignore_ssl: Annotated[bool, Meta(description="Accept any certificate.")] = False
    follow_redirects: Annotated[bool, Meta(description="Follow up to five redirects, each checked.")] = True
    max_bytes: Annotated[
        int, Meta(ge=1, le=64 * 1024 * 1024, description="Largest answer accepted, unpacked.")
    ] = 10 * 1024 * 1024


def _retry(parameters: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Values may be written as text, so they are read as numbers here."""
    if parameters.get("retry") is None:
        return None
    policy: dict[str, Any] = {"max_attempts": int(parameters["retry"]) + 1, "backoff": 1.0, "jitter": False}
    if parameters.get("retry_delay") is not None:
        policy["initial_delay"] = float(parameters["retry_delay"])
    return policy


TYPE = declare(
    "http",
    Parameters,
    kinds={"retry": "literal", "retry_delay": "literal"},
    lax=True,
    extra=combined,
    aliases=("call_external_service",),
    summary="Sends an HTTP request.",
    doc="Sends a request and reads the answer, JSON where it is JSON. Private addresses are blocked unless "
    "allowed. Each "
    "request carries an `Idempotency-Key` unless the node says `idempotency_key: false`.",
    output="`{status, body, headers, duration_ms}`; header names in lower case. A body that is no JSON and no text, or "
    "is large, is a reference `{blob, size, content_type, name}`. With pages: `pages` and `complete` too.",
    errors={
        "HTTP_TIMEOUT": "no complete answer in time",
        "HTTP_CONNECT": "no connection",
        "HTTP_STATUS": "a status that `raise_on_status` names",
        "HTTP_BLOCKED": "the address is not allowed",
        "HTTP_TOO_LARGE": "the answer is larger than `max_bytes`",
        "HTTP_TLS": "the certificate or handshake failed",
        "HTTP_REDIRECT": "too many redirects, or one that is not allowed",
        "HTTP_PROTOCOL": "the answer is not HTTP, or breaks off",
        "HTTP_BODY": "the answer should be JSON and is not",
        "HTTP_PAGES": "a page has no list, or leads back to an earlier one",
        "BLOB_UNKNOWN": "a reference leads to no blob of this execution",
        **CREDENTIAL_ERRORS,
        "CREDENTIAL_TOKEN": "the token endpoint of the credential gives no token",
        "EXPRESSION_ERROR": "a parameter cannot be evaluated",
    },
    credentials=True,
    effectful=lambda parameters: True,
    retry=_retry,
)


async def run(call: NodeCall[Parameters]) -> Outcome:
    """One exchange, through the connections that all calls of the process share."""
    return Output(await _exchange()(call))


@cache
def _exchange() -> Callable[[NodeCall[Parameters]], Awaitable[dict[str, Any]]]:
    from rune.nodes.io.http_client.exchange import exchange  # noqa: PLC0415 - who calls nobody should not wait for it

    return exchange
