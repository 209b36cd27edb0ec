"""The exchange of an http node: the request, the redirects and pages that follow, the answer."""

from __future__ import annotations

import asyncio
import re
import time
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from email.utils import parsedate_to_datetime
from typing import Any

import aiohttp
import msgspec

from rune.errors import NodeFailure
from rune.nodes.base import Call
from rune.nodes.io.address import Target, joined
from rune.nodes.io.body import excerpt, read
from rune.nodes.io.redact import redacted
from rune.nodes.io.request import Request, build, raises
from rune.nodes.io.unpack import unpacked

REDIRECTS = 5
PAGES = 100
_REDIRECTING = frozenset({301, 302, 303, 307, 308})
_NEXT = re.compile(r"<([^<>]*)>([^<]*)")
_REL_NEXT = re.compile(r""";\s*rel\s*=\s*("[^"]*\bnext\b[^"]*"|next\b)""", re.IGNORECASE)
_LONGEST_DELAY = 10 * 365 * 86_400


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


async def exchange(call: Call[Any]) -> dict[str, Any]:
    """What the node gives back."""
    request = build(call.parameters, call.key)
    client = call.world.http()
    began = time.monotonic()
    async with client.lane(request.where):
        try:
            async with asyncio.timeout(call.parameters.timeout):
                answers = await _pages(call, request)
        except TimeoutError:
            seconds = f"{call.parameters.timeout:g}"
            message = f"{redacted(request.where.url)}: no complete answer within {seconds} s"
            raise NodeFailure(message, code="HTTP_TIMEOUT") from None
    return _output(call, answers, round((time.monotonic() - began) * 1000))


async def _pages(call: Call[Any], request: Request) -> list[Answer]:
    wanted = call.parameters.follow_next
    most = PAGES if wanted is True else int(wanted)
    left = call.parameters.max_bytes
    answers = [await _answer(call, request, left)]
    while len(answers) <= most:
        last = answers[-1]
        following = _next(last)
        if following is None:
            break
        left -= len(last.body)
        answers.append(await _answer(call, last.request.to(following), max(left, 0)))
    return answers


async def _answer(call: Call[Any], request: Request, most: int) -> Answer:
    """The answer to one request, wherever it leads; a status that is to fail does so here."""
    for hop in range(REDIRECTS + 1):
        async with _sent(call, request) as response:
            location = response.headers.get("Location")
            moved = response.status in _REDIRECTING and location is not None
            if not (moved and call.parameters.follow_redirects):
                answer = await _received(response, request, most)
                break
            if hop == REDIRECTS:
                raise _redirect(request, f"more than {REDIRECTS} redirects")
            where = joined(request.where, location or "")
            if request.where.scheme == "https" and where.scheme == "http":
                raise _redirect(request, "a redirect from https to http is not followed")
            request = request.redirected(response.status, where)
    if raises(call.parameters.raise_on_status, answer.status):
        raise _failed(call, answer)
    return answer


def _redirect(request: Request, why: str) -> NodeFailure:
    return NodeFailure(f"{redacted(request.where.url)}: {why}", code="HTTP_REDIRECT")


@asynccontextmanager
async def _sent(call: Call[Any], request: Request) -> AsyncIterator[aiohttp.ClientResponse]:
    """Send a request; whatever the network does is one of the node's errors."""
    label = redacted(request.where.url)
    try:
        async with call.world.http().send(
            request.method,
            request.where,
            request.headers,
            request.body,
            verify=not call.parameters.ignore_ssl,
        ) as response:
            yield response
    except (aiohttp.ClientSSLError, aiohttp.ServerFingerprintMismatch) as error:
        raise NodeFailure(f"{label}: {_cause(error)}", code="HTTP_TLS") from None
    except (
        aiohttp.ServerDisconnectedError,
        aiohttp.ClientPayloadError,
        aiohttp.ClientResponseError,
    ) as error:
        raise NodeFailure(f"{label}: the answer is broken: {_cause(error)}", code="HTTP_PROTOCOL") from None
    except zlib.error as error:
        raise NodeFailure(f"{label}: the answer is broken: {error}", code="HTTP_PROTOCOL") from None
    except aiohttp.ServerTimeoutError:
        raise NodeFailure(f"{label}: no connection in time", code="HTTP_CONNECT") from None
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise NodeFailure(f"{label}: no connection: {_cause(error)}", code="HTTP_CONNECT") from None


def _cause(error: Exception) -> str:
    """In short, and without the address, which aiohttp repeats in full."""
    inner = getattr(error, "os_error", None) or error.__cause__ or error
    if isinstance(error, aiohttp.ClientResponseError):
        return error.message[:200] or type(error).__name__
    return (getattr(inner, "strerror", None) or str(inner) or type(inner).__name__)[:200]


async def _received(response: aiohttp.ClientResponse, request: Request, most: int) -> Answer:
    label = redacted(request.where.url)
    encoding = response.headers.get("Content-Encoding", "")
    if request.method == "HEAD" or response.status in (204, 304):
        body = b""
    else:
        body = await unpacked(response.content.iter_any(), encoding, most, label)
    return Answer(request, response.status, _headers(response), body)


def _headers(response: aiohttp.ClientResponse) -> dict[str, Any]:
    """Names in lower case; what is repeated is joined, except cookies, whose dates have commas."""
    found: dict[str, Any] = {}
    for name, value in response.headers.items():
        lower = name.lower()
        text = value.encode("utf-8", "replace").decode()
        if lower == "set-cookie":
            found.setdefault(lower, []).append(text)
        else:
            found[lower] = f"{found[lower]}, {text}" if lower in found else text
    return found


def _next(answer: Answer) -> Target | None:
    for link, rest in _NEXT.findall(str(answer.headers.get("link", ""))):
        if _REL_NEXT.search(rest):
            return joined(answer.request.where, link)
    return None


def _failed(call: Call[Any], answer: Answer) -> NodeFailure:
    details: dict[str, Any] = {
        "status": answer.status,
        "body": excerpt(answer.body, answer.content_type),
    }
    asked = _asked_delay(answer.headers.get("retry-after"))
    if asked is not None:
        details["retry_at"] = call.now + round(asked * 1000)
    message = f"{answer.request.method} {answer.label} answered {answer.status}"
    return NodeFailure(message, code="HTTP_STATUS", details=details)


def _asked_delay(text: str | None) -> float | None:
    """Seconds that a `Retry-After` asks for; it is a number or a date."""
    if text is None:
        return None
    if text.isascii() and text.isdigit():
        return float(min(int(text[:12]), _LONGEST_DELAY))
    try:
        seconds = parsedate_to_datetime(text).timestamp() - time.time()
    except (ValueError, TypeError, OverflowError):
        return None
    return min(max(seconds, 0.0), _LONGEST_DELAY)


def _output(call: Call[Any], answers: list[Answer], duration: int) -> dict[str, Any]:
    last = answers[-1]
    bodies = [read(each.body, each.content_type, call.limits, each.label) for each in answers]
    output: dict[str, Any] = {"status": last.status, "body": bodies[0][0], "headers": last.headers}
    if call.parameters.follow_next:
        pages = [body for body, _ in bodies]
        whole = all(isinstance(each, list) for each in pages)
        output["body"] = [item for page in pages for item in page] if whole else pages
        output["pages"] = len(pages)
    elif bodies[0][1] is not None:
        output["encoding"] = bodies[0][1]
    output["duration_ms"] = duration
    return output
