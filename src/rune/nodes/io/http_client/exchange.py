"""The exchange of an http node: authenticates and sends the request, follows redirects and pages, and returns the
response.

A credential is added as a header, a query parameter or a fetched OAuth 2 token. Network errors are converted to the
node's error codes.
"""

from __future__ import annotations

import base64
import re
import time
import zlib
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import quote, quote_plus, urlencode

import aiohttp
import msgspec
from msgspec.structs import replace

from rune.codec.decode import MalformedDataError, decode
from rune.core.json_decoder import JsonDecoder
from rune.errors import NodeFailure
from rune.nodes.base import NodeCall
from rune.nodes.credentials import check_connection
from rune.nodes.io.http_client.client import Response
from rune.nodes.io.http_client.pagination import PAGES, Pagination, following, items_of, rule_of
from rune.nodes.io.http_client.request import Request, build, raises
from rune.nodes.io.http_client.response import (
    AS_BLOB,
    excerpt,
    is_permanent_status,
    read,
    read_decoded,
    response_file_name,
)
from rune.nodes.io.http_client.ssrf import Target, join_url, target
from rune.nodes.redaction import redacted
from rune.ports.credentials import ApiKey, Basic, Bearer, Credential, Header, OAuth2

TYPES = ("basic", "bearer", "header", "api_key", "oauth2")
NO_TOKEN = "CREDENTIAL_TOKEN"
MAX_TOKEN_RESPONSE_BYTES = 256 * 1024
# Lifetime of a token whose server does not announce one.
DEFAULT_LIFETIME_S = 300.0

_REJECTED = frozenset({400, 401, 403})
_HEADERS = {
    "accept": "application/json",
    "accept-encoding": "gzip, deflate",
    "content-type": "application/x-www-form-urlencoded",
    "user-agent": "rune",
}


class _Token(msgspec.Struct):
    access_token: str
    expires_in: float = DEFAULT_LIFETIME_S
    token_type: str = "Bearer"


_TOKEN = JsonDecoder(_Token, strict=False)


async def authorize(call: NodeCall[Any], request: Request) -> Request:
    """Add the node's credential to a request, if it references one."""
    credential = await call.credential(*TYPES, host=request.where.host)
    if credential is None:
        return request
    _check_target(credential, request.where, verify=not getattr(call.parameters, "ignore_ssl", False))
    return await with_credential(call, request, credential)


def _check_target(credential: Credential, where: Target, *, verify: bool = True) -> None:
    check_connection(credential, where.host, verified=where.scheme == "https" and verify)


async def renew_token(call: NodeCall[Any], request: Request) -> Request | None:
    """Replace a rejected token, once per call; return None if there is no token to replace."""
    credential = await call.credential(*TYPES, host=request.where.host)
    if credential is None or not isinstance(credential.fields, OAuth2) or call.usage is None:
        return None
    if call.usage.renewed:
        return None
    call.usage.renewed = True
    rejected = request.headers.get("authorization", "").partition(" ")[2]
    return await _with_token(call, request, credential, credential.fields, rejected=rejected)


async def with_credential(call: NodeCall[Any], request: Request, credential: Credential) -> Request:
    """Add a credential to a request; the caller has checked that it may be sent there."""
    fields = credential.fields
    match fields:
        case Basic():
            return _with_header(request, "authorization", basic(fields.username, fields.password))
        case Bearer():
            return _with_header(request, "authorization", f"Bearer {fields.token}")
        case Header():
            return _with_header(request, fields.name.lower(), fields.value)
        case ApiKey(place="header"):
            return _with_header(request, fields.name.lower(), fields.key)
        case ApiKey():
            pair = f"{quote(fields.name, safe='')}={quote(fields.key, safe='')}"
            return replace(request, query=pair).to(request.where)
        case OAuth2():
            return await _with_token(call, request, credential, fields)
        case _:
            raise AssertionError(credential.type)


def basic(username: str, password: str) -> str:
    """Return the `Authorization` header of basic authentication."""
    return "Basic " + base64.b64encode(f"{username}:{password}".encode()).decode()


def _with_header(request: Request, name: str, value: str) -> Request:
    return replace(request, headers={**request.headers, name: value}, private=request.private | {name})


async def _with_token(
    call: NodeCall[Any], request: Request, credential: Credential, fields: OAuth2, rejected: str | None = None
) -> Request:
    async def fetch() -> tuple[str, float]:
        return await _fetch_token(call, credential, fields)

    key = (credential.id, credential.version)
    token = await call.resources.tokens.get(key, fetch, instead_of=rejected)
    call.protect(token)
    return _with_header(request, "authorization", f"Bearer {token}")


async def _fetch_token(call: NodeCall[Any], credential: Credential, fields: OAuth2) -> tuple[str, float]:
    """Fetch a token; its endpoint is checked by the same guard as any other URL."""
    where = target(fields.token_url)
    _check_target(credential, where)
    label = redacted(where.url)
    form = {"grant_type": "client_credentials", "scope": fields.scope, "audience": fields.audience}
    headers = {**_HEADERS}
    if fields.send_as == "body":
        form |= {"client_id": fields.client_id, "client_secret": fields.client_secret}
    else:
        # RFC 6749 requires both to be form-encoded before they are joined.
        headers["authorization"] = basic(quote_plus(fields.client_id), quote_plus(fields.client_secret))
        call.protect(f"{quote_plus(fields.client_id)}:{quote_plus(fields.client_secret)}")
    body = urlencode({name: value for name, value in form.items() if value is not None}).encode()
    try:
        async with call.resources.http().send("POST", where, headers, body, verify=True) as response:
            status = response.status
            data = await read_decoded(
                response.content.iter_any(),
                response.headers.get("Content-Encoding", ""),
                MAX_TOKEN_RESPONSE_BYTES,
                label,
            )
    except (aiohttp.ClientError, OSError, ValueError, zlib.error) as error:
        raise NodeFailure(
            f"{label}: the token request failed: {type(error).__name__}", code=NO_TOKEN
        ) from None
    if status != 200:
        reason = "the client was rejected" if status in _REJECTED else "no token"
        raise NodeFailure(
            f"{label} returned {status}: {reason}",
            code=NO_TOKEN,
            details={"status": status},
            permanent=is_permanent_status(status),
        )
    try:
        found = decode(_TOKEN, data)
    except MalformedDataError:
        raise NodeFailure(f"{label}: the response contains no token", code=NO_TOKEN) from None
    if found.token_type.lower() != "bearer" or not found.access_token.isprintable() or not found.access_token:
        raise NodeFailure(f"{label}: the token is not a valid bearer token", code=NO_TOKEN)
    call.protect(found.access_token)
    return found.access_token, max(found.expires_in, 0.0)


MAX_REDIRECTS = 5

_MAX_DELAY_S = 10 * 365 * 86_400

# A body announced to be no larger is read in one go.
_SMALL_BODY_BYTES = 256 * 1024
_REDIRECT_STATUSES = frozenset({301, 302, 303, 307, 308})
_NEXT = re.compile(r"<([^<>]*)>([^<]*)")
_REL_NEXT = re.compile(r""";\s*rel\s*=\s*("[^"]*\bnext\b[^"]*"|next\b)""", re.IGNORECASE)
_NETWORK_ERRORS = (aiohttp.ClientError, OSError, ValueError, zlib.error)
_PROTOCOL_ERRORS = (aiohttp.ServerDisconnectedError, aiohttp.ClientPayloadError, aiohttp.ClientResponseError)


class SendRequest:
    """Sends a request when entered; network errors, also those inside the block, become errors of the node."""

    __slots__ = ("_call", "_pending", "_request", "_verify")

    def __init__(self, call: NodeCall[Any], request: Request, *, verify: bool = True) -> None:
        self._call = call
        self._request = request
        self._verify = verify

    async def __aenter__(self) -> Response:
        request = self._request
        try:
            self._pending = self._call.resources.http().send(
                request.method, request.where, request.headers, request.body, verify=self._verify
            )
            return await self._pending.__aenter__()
        except _NETWORK_ERRORS as error:
            raise _failure(request, error) from None

    async def __aexit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        try:
            await self._pending.__aexit__(kind, error, trace)
        except _NETWORK_ERRORS as late:
            raise _failure(self._request, late) from None
        if isinstance(error, _NETWORK_ERRORS):
            raise _failure(self._request, error) from None


def _failure(request: Request, error: Exception) -> NodeFailure:
    label = redacted(request.where.url)
    if isinstance(error, aiohttp.ClientSSLError | aiohttp.ServerFingerprintMismatch):
        return NodeFailure(f"{label}: {_cause(error)}", code="HTTP_TLS")
    if isinstance(error, _PROTOCOL_ERRORS):
        return NodeFailure(f"{label}: the response is not valid: {_cause(error)}", code="HTTP_PROTOCOL")
    if isinstance(error, zlib.error):
        return NodeFailure(f"{label}: the response is not valid: {error}", code="HTTP_PROTOCOL")
    if isinstance(error, aiohttp.ServerTimeoutError):
        return NodeFailure(f"{label}: connecting timed out", code="HTTP_CONNECT")
    return NodeFailure(f"{label}: connection failed: {_cause(error)}", code="HTTP_CONNECT")


def _cause(error: Exception) -> str:
    """Return a short reason without the URL, which aiohttp repeats unredacted."""
    inner = getattr(error, "os_error", None) or error.__cause__ or error
    if isinstance(error, aiohttp.ClientResponseError):
        return error.message[:200] or type(error).__name__
    return (getattr(inner, "strerror", None) or str(inner) or type(inner).__name__)[:200]


def retry_delay(now: int, retry_after: str | None) -> dict[str, int]:
    """Return the failure details with the earliest time of the next attempt, if the server announced one."""
    delay_s = None if retry_after is None else _parse_retry_after(retry_after)
    return {} if delay_s is None else {"retry_at": now + round(delay_s * 1000)}


def _parse_retry_after(text: str) -> float | None:
    """Return the seconds of a `Retry-After` header, which is a number or a date."""
    if text.isascii() and text.isdigit():
        return float(min(int(text[:12]), _MAX_DELAY_S))
    try:
        seconds = parsedate_to_datetime(text).timestamp() - time.time()
    except (ValueError, TypeError, OverflowError):
        return None
    return min(max(seconds, 0.0), _MAX_DELAY_S)


class FinalResponse(msgspec.Struct, frozen=True):
    """The final response after redirects."""

    request: Request
    status: int
    headers: dict[str, Any]
    body: bytes

    @property
    def content_type(self) -> str:
        return str(self.headers.get("content-type", ""))

    @property
    def label(self) -> str:
        return redacted(self.request.where.url)


class Pages(msgspec.Struct):
    """Fetched responses, their bodies, and their items if pages are followed."""

    responses: list[FinalResponse]
    bodies: list[Any]
    items: list[list[Any] | None] = []
    complete: bool = True


async def exchange(call: NodeCall[Any]) -> dict[str, Any]:
    """Run the exchange and return the node's output."""
    rule = rule_of(call.parameters)
    request = await build(call, rule)
    client = call.resources.http()
    began = time.monotonic()
    async with client.host_limit(request.where):
        try:
            with client.within(call.parameters.timeout):
                authorized = request if call.credentials is None else await authorize(call, request)
                pages = await _fetch_pages(call, authorized, rule)
        except TimeoutError:
            seconds = f"{call.parameters.timeout:g}"
            message = f"{redacted(request.where.url)}: no complete response within {seconds} s"
            raise NodeFailure(message, code="HTTP_TIMEOUT") from None
    return await _output(call, pages, round((time.monotonic() - began) * 1000))


async def _fetch_pages(call: NodeCall[Any], request: Request, rule: Pagination | None) -> Pages:
    """Fetch the response and, given a rule, all further pages; together they may have `max_bytes`."""
    left = call.parameters.max_bytes
    response = await _fetch(call, request, left)
    pages = Pages([response], [await _body(call, response)])
    if rule is None or response.status >= 400:
        return pages
    pages.items.append(items_of(rule, pages.bodies[0], response.label))
    seen = {request.where.url, response.request.where.url}
    while (where := _next(rule, pages)) is not None:
        last = pages.responses[-1]
        if len(pages.responses) == rule.max_pages:
            pages.complete = False
            break
        _check_step(call, last.request, where)
        if where.url in seen:
            raise NodeFailure(f"{last.label}: the next page was fetched before", code=PAGES)
        seen.add(where.url)
        left -= len(last.body)
        response = await _fetch(call, last.request.to(where), max(left, 0))
        if response.status >= 400:
            if response.status == 404 and rule.style in ("page", "offset"):
                break
            raise _status_failure(call, response)
        body = await _body(call, response)
        items = items_of(rule, body, response.label)
        if rule.style in ("page", "offset") and not items:
            break
        pages.responses.append(response)
        pages.bodies.append(body)
        pages.items.append(items)
    return pages


def _next(rule: Pagination, pages: Pages) -> Target | None:
    last = pages.responses[-1]
    if rule.style == "link":
        return _next_link(last)
    found = following(rule, last.request.where, pages.bodies[-1], pages.items, last.label)
    return join_url(last.request.where, found) if isinstance(found, str) else found


async def _body(call: NodeCall[Any], response: FinalResponse) -> Any:
    wanted = call.parameters.response
    return await read(response.body, response.content_type, call.limits, response, wanted)


async def _fetch(call: NodeCall[Any], request: Request, max_bytes: int) -> FinalResponse:
    """Fetch one response; renew a rejected token once and fail on a status in `raise_on_status`."""
    response = await _follow_redirects(call, request, max_bytes)
    if response.status == 401 and response.request.where.origin == request.where.origin:
        renewed = await renew_token(call, request)
        if renewed is not None:
            response = await _follow_redirects(call, renewed, max_bytes)
    if raises(call.parameters.raise_on_status, response.status):
        raise _status_failure(call, response)
    return response


async def _follow_redirects(call: NodeCall[Any], request: Request, max_bytes: int) -> FinalResponse:
    """Send a request and return the response at the end of its redirects."""
    for hop in range(MAX_REDIRECTS + 1):
        async with SendRequest(call, request, verify=not call.parameters.ignore_ssl) as response:
            moved = response.status in _REDIRECT_STATUSES and call.parameters.follow_redirects
            location = response.headers.get("Location") if moved else None
            if location is None:
                return await _read_response(response, request, max_bytes)
            if hop == MAX_REDIRECTS:
                raise _redirect_failure(request, f"more than {MAX_REDIRECTS} redirects")
            where = join_url(request.where, location)
            _check_step(call, request, where)
            request = request.redirected(response.status, where)
    raise AssertionError("the last hop returns or raises")


def _check_step(call: NodeCall[Any], request: Request, where: Target) -> None:
    """Reject a redirect or next page that drops TLS or carries a secret to another origin."""
    if request.where.scheme == "https" and where.scheme == "http":
        raise _redirect_failure(request, "a redirect from https to http is not followed")
    if where.origin != request.where.origin and call.usage and call.usage.redactor.finds(where.url):
        raise _redirect_failure(request, "a redirect would send the credential to another origin")


def _redirect_failure(request: Request, reason: str) -> NodeFailure:
    return NodeFailure(f"{redacted(request.where.url)}: {reason}", code="HTTP_REDIRECT")


async def _read_response(response: Response, request: Request, max_bytes: int) -> FinalResponse:
    headers = response.headers
    if request.method == "HEAD" or response.status in (204, 304):
        body = b""
    elif (
        "Content-Encoding" not in headers
        and "Transfer-Encoding" not in headers
        and _is_small(response, max_bytes)
    ):
        body = await response.read_body()
    else:
        label = redacted(request.where.url)
        body = await read_decoded(
            response.content.iter_any(), headers.get("Content-Encoding", ""), max_bytes, label
        )
    return FinalResponse(request, response.status, _headers(response), body)


def _is_small(response: Response, max_bytes: int) -> bool:
    announced = response.content_length
    return announced is not None and announced <= min(max_bytes, _SMALL_BODY_BYTES)


def _headers(response: Response) -> dict[str, Any]:
    """Return headers by lower-case name; repeated ones are joined, except cookies, whose dates contain commas."""
    found: dict[str, Any] = {}
    for name, value in response.headers.items():
        lower = name.lower()
        text = value if value.isascii() else value.encode("utf-8", "replace").decode()
        if lower == "set-cookie":
            found.setdefault(lower, []).append(text)
        else:
            found[lower] = f"{found[lower]}, {text}" if lower in found else text
    return found


def _next_link(response: FinalResponse) -> Target | None:
    for link, rest in _NEXT.findall(str(response.headers.get("link", ""))):
        if _REL_NEXT.search(rest):
            return join_url(response.request.where, link)
    return None


def _status_failure(call: NodeCall[Any], response: FinalResponse) -> NodeFailure:
    details: dict[str, Any] = {
        "status": response.status,
        "body": excerpt(response.body, response.content_type),
    }
    details |= retry_delay(call.now, response.headers.get("retry-after"))
    message = f"{response.request.method} {response.label} returned {response.status}"
    permanent = is_permanent_status(response.status)
    return NodeFailure(message, code="HTTP_STATUS", details=details, permanent=permanent)


async def _output(call: NodeCall[Any], pages: Pages, duration: int) -> dict[str, Any]:
    last = pages.responses[-1]
    bodies = [
        await _store_body(call, response) if body is AS_BLOB else body
        for response, body in zip(pages.responses, pages.bodies, strict=True)
    ]
    output: dict[str, Any] = {"status": last.status, "body": bodies[0], "headers": last.headers}
    if pages.items:
        lists = [each for each in pages.items if each is not None]
        all_lists = len(lists) == len(bodies)
        output["body"] = [item for page in lists for item in page] if all_lists else bodies
        output["pages"] = len(bodies)
        output["complete"] = pages.complete
    output["duration_ms"] = duration
    return output


async def _store_body(call: NodeCall[Any], response: FinalResponse) -> dict[str, Any]:
    """Store a large or binary body as a blob and return its reference."""
    disposition = str(response.headers.get("content-disposition", ""))
    name = response_file_name(disposition, response.request.where.resource)
    return await call.blobs.put(response.body, name, response.content_type)
