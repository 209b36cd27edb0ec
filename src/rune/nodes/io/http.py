"""The `http` node: sends an HTTP request and returns the response."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import cache
from typing import Annotated, Any, Literal

from msgspec import Meta, field

from rune.core.execution.outcome import Outcome, Output
from rune.nodes.base import NodeCall
from rune.nodes.credentials import CREDENTIAL_ERRORS, PERMANENT_CREDENTIAL_ERRORS
from rune.nodes.io.http_client.pagination import Pagination, combined
from rune.nodes.schema import Model, Scalar, declare

BodyType = Literal["auto", "json", "form", "multipart", "text", "binary"]
Wanted = Literal["auto", "json", "text", "blob"]
Values = dict[str, Scalar | list[Scalar]]


class Parameters(Model, kw_only=True, frozen=True):
    """The request and the statuses that fail it."""

    url: Annotated[str, Meta(min_length=1, description="URL, `http` or `https`.")]
    method: Annotated[
        Literal["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"],
        Meta(description="Request method."),
    ] = "GET"
    query: Annotated[
        Values, Meta(description="Query parameters; a list repeats the name, null omits it.")
    ] = field(default_factory=dict)
    headers: Annotated[Values, Meta(description="Request headers; null omits one.")] = field(
        default_factory=dict
    )
    body: Annotated[
        Any,
        Meta(
            description="Request body: text is sent as is, a blob reference as its bytes, any other value as JSON, an "
            "object as a form if the Content-Type is a form type. Default: none."
        ),
    ] = None
    body_type: Annotated[
        BodyType,
        Meta(
            description="How `body` is encoded. `multipart`: an object of values and files, given as blob references "
            "or `{filename, content}`. `binary`: a blob reference or base64 text. Default: chosen from the value."
        ),
    ] = "auto"
    response: Annotated[
        Wanted,
        Meta(
            description="How the response body is returned. `auto`: JSON and text up to 10 MiB as values, anything "
            "else as a blob reference."
        ),
    ] = "auto"
    retry: Annotated[
        Annotated[int, Meta(ge=0, le=100)] | None,
        Meta(description="Number of retries after a failure. The node's `retry` policy takes precedence."),
    ] = None
    retry_delay: Annotated[
        Annotated[float, Meta(ge=0)] | None,
        Meta(description="Seconds between retries. The node's `retry` policy takes precedence."),
    ] = None
    follow_next: Annotated[
        Annotated[int, Meta(ge=0, le=1_000)] | bool,
        Meta(
            description='Maximum number of further pages to fetch from `Link: …; rel="next"` headers; true: up to '
            "100 pages. The body is then the concatenated list, or a list of the bodies."
        ),
    ] = False
    pagination: Annotated[
        Pagination | None, Meta(description="How further pages are found. Default: no pagination.")
    ] = None
    timeout: Annotated[float, Meta(gt=0, description="Timeout in seconds for the whole exchange.")] = 30
    raise_on_status: Annotated[
        Annotated[str, Meta(pattern=r"^\s*[1-5](xx|XX|[0-9]{2})(\s*,\s*[1-5](xx|XX|[0-9]{2}))*\s*$")]
        | Annotated[int, Meta(ge=100, le=599)]
        | None,
        Meta(description="Statuses that fail the node, such as `4xx,5xx` or `404`. Default: none."),
    ] = None
    ignore_ssl: Annotated[bool, Meta(description="Skip TLS certificate verification.")] = False
    follow_redirects: Annotated[
        bool, Meta(description="Follow up to five redirects; each target is checked.")
    ] = True
    max_bytes: Annotated[
        int,
        Meta(ge=1, le=64 * 1024 * 1024, description="Maximum response size in bytes after decompression."),
    ] = 10 * 1024 * 1024


def _retry(parameters: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Build the retry policy; parameters may be numbers written as text."""
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
    doc="Sends a request and returns the response, decoding JSON. Private addresses are blocked unless allowed. "
    "Each request carries an `Idempotency-Key` header unless the node sets `idempotency_key: false`.",
    output="`{status, body, headers, duration_ms}` with header names in lower case. A large or binary body is a blob "
    "reference `{blob, size, content_type, name}`. Pagination adds `pages` and `complete`.",
    errors={
        "HTTP_TIMEOUT": "no complete response before the timeout",
        "HTTP_CONNECT": "the connection failed",
        "HTTP_STATUS": "the status is listed in `raise_on_status`",
        "HTTP_BLOCKED": "the address is not allowed",
        "HTTP_TOO_LARGE": "the response is larger than `max_bytes`, or has more than 2,000,000 lists and objects",
        "HTTP_TLS": "the certificate is not valid or the TLS handshake failed",
        "HTTP_REDIRECT": "too many redirects, or one that is not allowed",
        "HTTP_PROTOCOL": "the response is not valid HTTP or is incomplete",
        "HTTP_BODY": "the response should be JSON but is not, or has a number that cannot be stored",
        "HTTP_PAGES": "a page has no list or links back to an earlier page",
        "BLOB_UNKNOWN": "the reference does not match a blob of this execution",
        **CREDENTIAL_ERRORS,
        "CREDENTIAL_TOKEN": "the credential's token endpoint returned no token",
        "EXPRESSION_ERROR": "a parameter cannot be evaluated",
    },
    permanent=frozenset({"HTTP_BLOCKED", "HTTP_TOO_LARGE", "HTTP_REDIRECT", "BLOB_UNKNOWN"})
    | PERMANENT_CREDENTIAL_ERRORS,
    by_status=frozenset({"HTTP_STATUS", "CREDENTIAL_TOKEN"}),
    credentials=True,
    effectful=lambda parameters: True,
    retry=_retry,
)


async def run(call: NodeCall[Parameters]) -> Outcome:
    """Send the request over the connection pool shared by the process."""
    return Output(await _exchange()(call))


@cache
def _exchange() -> Callable[[NodeCall[Parameters]], Awaitable[dict[str, Any]]]:
    # Imported on first use: aiohttp is slow to load.
    from rune.nodes.io.http_client.exchange import exchange  # noqa: PLC0415

    return exchange
