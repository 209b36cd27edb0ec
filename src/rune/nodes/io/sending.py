"""One request sent: whatever the network does becomes one of the codes of a node."""

from __future__ import annotations

import time
import zlib
from email.utils import parsedate_to_datetime
from typing import Any

import aiohttp

from rune.errors import NodeFailure
from rune.nodes.base import Call
from rune.nodes.io.request import Request
from rune.nodes.io.transfer import Response
from rune.nodes.redaction import redacted

_LONGEST_DELAY = 10 * 365 * 86_400


class sent:  # noqa: N801 - reads like the function that it is to whoever enters it
    """Send a request; whatever the network does is one of the node's errors."""

    __slots__ = ("_call", "_request", "_sending", "_verify")

    def __init__(self, call: Call[Any], request: Request, *, verify: bool = True) -> None:
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


def patience(now: int, retry_after: str | None) -> dict[str, int]:
    """The details of a failure that say when the next attempt may be, if the server does."""
    asked = None if retry_after is None else _asked_delay(retry_after)
    return {} if asked is None else {"retry_at": now + round(asked * 1000)}


def _asked_delay(text: str) -> float | None:
    """Seconds that a `Retry-After` asks for; it is a number or a date."""
    if text.isascii() and text.isdigit():
        return float(min(int(text[:12]), _LONGEST_DELAY))
    try:
        seconds = parsedate_to_datetime(text).timestamp() - time.time()
    except (ValueError, TypeError, OverflowError):
        return None
    return min(max(seconds, 0.0), _LONGEST_DELAY)
