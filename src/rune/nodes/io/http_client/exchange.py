"""One request sent: whatever the network does becomes one of the codes of a node.

The exchange of an http node: the request, the redirects and pages that follow, the answer.
"""

from __future__ import annotations

import re
import time
import zlib
from email.utils import parsedate_to_datetime
from typing import Any

import aiohttp
import msgspec

from rune.errors import NodeFailure
from rune.nodes.base import NodeCall
from rune.nodes.io.http_client.auth import authorized, renewed
from rune.nodes.io.http_client.client import Response
from rune.nodes.io.http_client.pagination import PAGES, Pagination, following, items_of, rule_of
from rune.nodes.io.http_client.request import Request, build, raises
from rune.nodes.io.http_client.response import AS_BLOB, excerpt, named, read, unpacked
from rune.nodes.io.http_client.ssrf import Target, joined
from rune.nodes.redaction import redacted

_MAX_DELAY_S = 10 * 365 * 86_400


class sent:  # noqa: N801 - reads like the function that it is to whoever enters it
    """Send a request; whatever the network does is one of the node's errors."""

    __slots__ = ("_call", "_request", "_sending", "_verify")

    def __init__(self, call: NodeCall[Any], request: Request, *, verify: bool = True) -> None:
        self._call = call
        self._request = request
        self._verify = verify

    async def __aenter__(self) -> Response:
        asked = self._request
        try:
            self._sending = self._call.world.http().send(
                asked.method, asked.where, asked.headers, asked.body, verify=self._verify
            )
            return await self._sending.__aenter__()
        except _OF_THE_NETWORK as error:
            raise _failure(asked, error) from None

    async def __aexit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        try:
            await self._sending.__aexit__(kind, error, trace)
        except _OF_THE_NETWORK as late:
            raise _failure(self._request, late) from None
        if isinstance(error, _OF_THE_NETWORK):
            raise _failure(self._request, error) from None


_OF_THE_NETWORK = (aiohttp.ClientError, OSError, ValueError, zlib.error)
_BROKEN = (aiohttp.ServerDisconnectedError, aiohttp.ClientPayloadError, aiohttp.ClientResponseError)


def _failure(request: Request, error: Exception) -> NodeFailure:
    label = redacted(request.where.url)
    if isinstance(error, aiohttp.ClientSSLError | aiohttp.ServerFingerprintMismatch):
        return NodeFailure(f"{label}: {_cause(error)}", code="HTTP_TLS")
    if isinstance(error, _BROKEN):
        return NodeFailure(f"{label}: the answer is broken: {_cause(error)}", code="HTTP_PROTOCOL")
    if isinstance(error, zlib.error):
        return NodeFailure(f"{label}: the answer is broken: {error}", code="HTTP_PROTOCOL")
    if isinstance(error, aiohttp.ServerTimeoutError):
        return NodeFailure(f"{label}: no connection in time", code="HTTP_CONNECT")
    return NodeFailure(f"{label}: no connection: {_cause(error)}", code="HTTP_CONNECT")


def _cause(error: Exception) -> str:
    """In short, and without the address, which aiohttp repeats in full."""
    inner = getattr(error, "os_error", None) or error.__cause__ or error
    if isinstance(error, aiohttp.ClientResponseError):
        return error.message[:200] or type(error).__name__
    return (getattr(inner, "strerror", None) or str(inner) or type(inner).__name__)[:200]


def retry_delay(now: int, retry_after: str | None) -> dict[str, int]:
    """The details of a failure that say when the next attempt may be, if the server does."""
    asked = None if retry_after is None else _asked_delay(retry_after)
    return {} if asked is None else {"retry_at": now + round(asked * 1000)}


def _asked_delay(text: str) -> float | None:
    """Seconds that a `Retry-After` asks for; it is a number or a date."""
    if text.isascii() and text.isdigit():
        return float(min(int(text[:12]), _MAX_DELAY_S))
    try:
        seconds = parsedate_to_datetime(text).timestamp() - time.time()
    except (ValueError, TypeError, OverflowError):
        return None
    return min(max(seconds, 0.0), _MAX_DELAY_S)


REDIRECTS = 5
_AT_ONCE = 256 * 1024
"""A body that is announced to be no larger is read in one go."""

_REDIRECTING = frozenset({301, 302, 303, 307, 308})
_NEXT = re.compile(r"<([^<>]*)>([^<]*)")
_REL_NEXT = re.compile(r""";\s*rel\s*=\s*("[^"]*\bnext\b[^"]*"|next\b)""", re.IGNORECASE)


class Answer(msgspec.Struct, frozen=True):
    """What came back at the end of the redirects."""

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
    """What was fetched: answers, their bodies, and their lists where pages are followed."""

    answers: list[Answer]
    bodies: list[Any]
    items: list[list[Any] | None] = []
    complete: bool = True


async def exchange(call: NodeCall[Any]) -> dict[str, Any]:
    """What the node gives back."""
    rule = rule_of(call.parameters)
    request = await build(call, rule)
    client = call.world.http()
    began = time.monotonic()
    async with client.lane(request.where):
        try:
            with client.within(call.parameters.timeout):
                asked = request if call.credentials is None else await authorized(call, request)
                pages = await _pages(call, asked, rule)
        except TimeoutError:
            seconds = f"{call.parameters.timeout:g}"
            message = f"{redacted(request.where.url)}: no complete answer within {seconds} s"
            raise NodeFailure(message, code="HTTP_TIMEOUT") from None
    return await _output(call, pages, round((time.monotonic() - began) * 1000))


async def _pages(call: NodeCall[Any], request: Request, rule: Pagination | None) -> Pages:
    """The answer and, if there is a rule, all that follow from it. They share the bytes that one may have."""
    left = call.parameters.max_bytes
    answer = await _answer(call, request, left)
    pages = Pages([answer], [_body(call, answer)])
    if rule is None or answer.status >= 400:
        return pages
    pages.items.append(items_of(rule, pages.bodies[0], answer.label))
    seen = {request.where.url, answer.request.where.url}
    while (where := _next(rule, pages)) is not None:
        last = pages.answers[-1]
        if len(pages.answers) == rule.max_pages:
            pages.complete = False
            break
        _check_step(call, last.request, where)
        if where.url in seen:
            raise NodeFailure(f"{last.label}: the next page is one that was fetched before", code=PAGES)
        seen.add(where.url)
        left -= len(last.body)
        answer = await _answer(call, last.request.to(where), max(left, 0))
        if answer.status >= 400:
            if answer.status == 404 and rule.style in ("page", "offset"):
                break
            raise _failed(call, answer)
        body = _body(call, answer)
        items = items_of(rule, body, answer.label)
        if rule.style in ("page", "offset") and not items:
            break
        pages.answers.append(answer)
        pages.bodies.append(body)
        pages.items.append(items)
    return pages


def _next(rule: Pagination, pages: Pages) -> Target | None:
    last = pages.answers[-1]
    if rule.style == "link":
        return _linked(last)
    found = following(rule, last.request.where, pages.bodies[-1], pages.items, last.label)
    return joined(last.request.where, found) if isinstance(found, str) else found


def _body(call: NodeCall[Any], answer: Answer) -> Any:
    return read(answer.body, answer.content_type, call.limits, answer, call.parameters.response)


async def _answer(call: NodeCall[Any], request: Request, most: int) -> Answer:
    """The answer to one request; a token that is refused is renewed once, a status that is to fail does so here."""
    answer = await _led(call, request, most)
    if answer.status == 401 and answer.request.where.origin == request.where.origin:
        again = await renewed(call, request)
        if again is not None:
            answer = await _led(call, again, most)
    if raises(call.parameters.raise_on_status, answer.status):
        raise _failed(call, answer)
    return answer


async def _led(call: NodeCall[Any], request: Request, most: int) -> Answer:
    """The answer at the end of the redirects."""
    for hop in range(REDIRECTS + 1):
        async with sent(call, request, verify=not call.parameters.ignore_ssl) as response:
            moved = response.status in _REDIRECTING and call.parameters.follow_redirects
            location = response.headers.get("Location") if moved else None
            if location is None:
                return await _received(response, request, most)
            if hop == REDIRECTS:
                raise _redirect(request, f"more than {REDIRECTS} redirects")
            where = joined(request.where, location)
            _check_step(call, request, where)
            request = request.redirected(response.status, where)
    raise AssertionError("the last hop answers or raises")


def _check_step(call: NodeCall[Any], request: Request, where: Target) -> None:
    """A redirect or a next page does not give up encryption and takes no secret elsewhere."""
    if request.where.scheme == "https" and where.scheme == "http":
        raise _redirect(request, "a redirect from https to http is not followed")
    if where.origin != request.where.origin and call.usage and call.usage.redactor.finds(where.url):
        raise _redirect(request, "a redirect would carry the credential elsewhere")


def _redirect(request: Request, why: str) -> NodeFailure:
    return NodeFailure(f"{redacted(request.where.url)}: {why}", code="HTTP_REDIRECT")


async def _received(response: Response, request: Request, most: int) -> Answer:
    headers = response.headers
    if request.method == "HEAD" or response.status in (204, 304):
        body = b""
    elif "Content-Encoding" not in headers and "Transfer-Encoding" not in headers and _fits(response, most):
        body = await response.whole()  # no more than was announced
    else:
        label = redacted(request.where.url)
        body = await unpacked(response.content.iter_any(), headers.get("Content-Encoding", ""), most, label)
    return Answer(request, response.status, _headers(response), body)


def _fits(response: Response, most: int) -> bool:
    announced = response.content_length
    return announced is not None and announced <= min(most, _AT_ONCE)


def _headers(response: Response) -> dict[str, Any]:
    """Names in lower case; what is repeated is joined, except cookies, whose dates have commas."""
    found: dict[str, Any] = {}
    for name, value in response.headers.items():
        lower = name.lower()
        text = value if value.isascii() else value.encode("utf-8", "replace").decode()
        if lower == "set-cookie":
            found.setdefault(lower, []).append(text)
        else:
            found[lower] = f"{found[lower]}, {text}" if lower in found else text
    return found


def _linked(answer: Answer) -> Target | None:
    for link, rest in _NEXT.findall(str(answer.headers.get("link", ""))):
        if _REL_NEXT.search(rest):
            return joined(answer.request.where, link)
    return None


def _failed(call: NodeCall[Any], answer: Answer) -> NodeFailure:
    details: dict[str, Any] = {
        "status": answer.status,
        "body": excerpt(answer.body, answer.content_type),
    }
    details |= retry_delay(call.now, answer.headers.get("retry-after"))
    message = f"{answer.request.method} {answer.label} answered {answer.status}"
    return NodeFailure(message, code="HTTP_STATUS", details=details)


async def _output(call: NodeCall[Any], pages: Pages, duration: int) -> dict[str, Any]:
    last = pages.answers[-1]
    bodies = [
        await _kept(call, answer) if body is AS_BLOB else body
        for answer, body in zip(pages.answers, pages.bodies, strict=True)
    ]
    output: dict[str, Any] = {"status": last.status, "body": bodies[0], "headers": last.headers}
    if pages.items:
        lists = [each for each in pages.items if each is not None]
        whole = len(lists) == len(bodies)
        output["body"] = [item for page in lists for item in page] if whole else bodies
        output["pages"] = len(bodies)
        output["complete"] = pages.complete
    output["duration_ms"] = duration
    return output


async def _kept(call: NodeCall[Any], answer: Answer) -> dict[str, Any]:
    """The reference to a body that is too large or too binary to be a value."""
    name = named(str(answer.headers.get("content-disposition", "")), answer.request.where.resource)
    return await call.blobs.put(answer.body, name, answer.content_type)
