"""Bodies of requests: every route reads them with `read_body`, which counts the bytes of all bodies in flight.

A body counts from when its bytes arrive until the route has handled the request, whether it is complete or not. Bodies
of at most 16 KiB do not count: the number of connections bounds them. Large bodies leave a reserve to smaller ones.
Bodies of senders that have not proved who they are may use half of each limit; among them are those of signed webhooks,
whose signatures are verified afterwards. One of them that takes long to arrive is refused in favour of another body.
"""

from __future__ import annotations

import asyncio
import time

from starlette.requests import Request

from rune.server.responses import ApiError

MAX_UNCOUNTED_BODY_BYTES = 16 * 1024
LARGE_BODY_BYTES = 256 * 1024
MAX_BYTES_IN_FLIGHT = 64 * 1024 * 1024
"""Limit on all counted bodies together, for one that is larger than `LARGE_BODY_BYTES`."""

RESERVED_BYTES = 16 * 1024 * 1024
"""What bodies of at most `LARGE_BODY_BYTES` may use beyond `MAX_BYTES_IN_FLIGHT`."""

ARRIVAL_S = 10.0
"""How long a body of an unproved sender may take to arrive while another body lacks room."""

_HELD = "held_body"


class BytesInFlight:
    """The bytes of bodies that a server has received and not answered. Decoding takes several times as many."""

    def __init__(self, limit: int = MAX_BYTES_IN_FLIGHT, reserved: int = RESERVED_BYTES) -> None:
        self._limit = limit
        self._reserved = reserved
        self._arriving: dict[HeldBody, None] = {}  # of unproved senders, the oldest first
        self.count = 0
        self.unproved = 0

    def grow(self, body: HeldBody, size: int) -> None:
        """Count a body that has arrived up to a size. Raise ApiError if all bodies together exceed the limit."""
        if size <= MAX_UNCOUNTED_BODY_BYTES:
            return
        more = size - body.size
        limit = self._limit if size > LARGE_BODY_BYTES else self._limit + self._reserved
        while self.count + more > limit or (not body.proved and self.unproved + more > limit // 2):
            if not self._refuse_late(body):
                exceeded = limit if body.proved else limit // 2
                raise ApiError(
                    f"requests in flight exceed {exceeded:,} bytes; try again", code="TOO_MANY_BYTES"
                )
        self._add(body, more)

    def _refuse_late(self, other: HeldBody) -> bool:
        """Refuse the oldest body of an unproved sender if it takes long to arrive; return whether one was."""
        oldest = next((each for each in self._arriving if each is not other and each.size), None)
        if oldest is None or not oldest.is_late:
            return False
        del self._arriving[oldest]
        oldest.refuse()
        self.release(oldest)
        return True

    def _add(self, body: HeldBody, more: int) -> None:
        body.size += more
        self.count += more
        if not body.proved:
            self.unproved += more

    def release(self, body: HeldBody) -> None:
        """Count a body no more."""
        self._add(body, -body.size)

    async def read(self, body: HeldBody, request: Request, limit: int) -> bytes:
        """Read a body up to a limit. That of an unproved sender may be refused meanwhile."""
        if body.proved:
            return await self._read(body, request, limit)
        self._arriving[body] = None
        try:
            async with body.deadline:
                return await self._read(body, request, limit)
        except TimeoutError:
            raise ApiError(
                f"the body took more than {ARRIVAL_S:g} s to arrive, and others need its room; try again",
                code="TOO_MANY_BYTES",
            ) from None
        finally:
            self._arriving.pop(body, None)

    async def _read(self, body: HeldBody, request: Request, limit: int) -> bytes:
        data = bytearray()
        try:
            async for part in request.stream():
                size = len(data) + len(part)
                if size > limit:
                    raise _too_large(limit)
                self.grow(body, size)
                data += part
            return bytes(data)
        finally:
            data.clear()  # a traceback may keep this frame


class HeldBody:
    """The counted bytes of one body, and whether its sender has proved who it is."""

    def __init__(self, *, proved: bool = True) -> None:
        self.proved = proved
        self.size = 0
        self.deadline = asyncio.Timeout(None)
        self._begun_at = time.monotonic()

    @property
    def is_late(self) -> bool:
        """Whether the body has taken long to arrive."""
        return time.monotonic() - self._begun_at > ARRIVAL_S

    def refuse(self) -> None:
        """Stop reading the body."""
        self.deadline.reschedule(0.0)


def _bytes_in_flight(request: Request) -> BytesInFlight:
    found: BytesInFlight = request.app.state.server.bodies
    return found


async def read_body(request: Request, limit: int, *, proved: bool = True) -> bytes:
    """Read a body. Reading stops as soon as the declared or the actual size exceeds the limit. The body counts until
    `release_body`, which the route calls when the request is handled. `proved`: the sender is authenticated."""
    encoding = request.headers.get("content-encoding", "").strip().lower()
    if encoding not in {"", "identity"}:
        raise ApiError(
            f"the Content-Encoding `{encoding[:80]}` is not supported; send the body without",
            code="BAD_MEDIA",
        )
    declared = request.headers.get("content-length")
    if declared is not None and declared.isascii() and declared.isdecimal() and int(declared) > limit:
        raise _too_large(limit)
    body = request.scope[_HELD] = HeldBody(proved=proved)
    return await _bytes_in_flight(request).read(body, request, limit)


def release_body(request: Request) -> None:
    """Count the body of a request no more, if it was read."""
    body: HeldBody | None = request.scope.pop(_HELD, None)
    if body is not None:
        _bytes_in_flight(request).release(body)


def _too_large(limit: int) -> ApiError:
    return ApiError(f"the body exceeds {limit:,} bytes", code="TOO_LARGE")
