"""Connections of the HTTP server, bounded before any request is authenticated.

uvicorn with httptools limits neither the size of a request head nor the time to send it, and `limit_concurrency` counts
requests only after their heads were read. The protocol here adds both, the number of connections in all and per
address, and the rate of a body. A client that exceeds a limit gets a problem document and is disconnected.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from typing import Any

import httptools
import msgspec
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from rune.server.responses import MEDIA, problem

CODES = {
    400: "BAD_REQUEST",
    408: "TOO_SLOW",
    414: "URL_TOO_LONG",
    429: "TOO_MANY_CONNECTIONS",
    431: "HEAD_TOO_LARGE",
    503: "OVERLOADED",
}
BODY_CHECK_S = 5.0
"""How often the rate of a body is checked, and how long a body may arrive at any rate."""

LINGER_S = 1.0
"""How long a rejected client may take to read its response and to disconnect."""

MAX_LINGERING = 100
"""Rejected connections beyond the limit that are closed gently."""


class ConnectionLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What a client may use before it is authenticated."""

    head_bytes: int = 64 * 1024
    headers: int = 100
    url_bytes: int = 8 * 1024
    head_timeout: float = 10.0  # seconds from the first byte of a head, or from the connection, to its end
    body_rate: int = 1024  # bytes per second, on average over BODY_CHECK_S; 0: any
    connections: int = 4_096
    connections_per_address: int = 512


class ConnectionTable:
    """The open connections of a server. If it is full, the connection that has waited longest for a request is closed
    in favour of a new one; while all are in use, a new one is rejected."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self.limits = limits
        self._by_address: Counter[str] = Counter()
        self._open = 0
        self._waiting: OrderedDict[BoundedHttpProtocol, str] = OrderedDict()

    def __len__(self) -> int:
        return self._open

    def enter(self, connection: BoundedHttpProtocol, address: str) -> tuple[int, str] | None:
        """Add a connection. Return the status and the reason if there is no room for it."""
        self._open += 1
        self._by_address[address] += 1
        refused: tuple[int, str] | None = None
        if self._by_address[address] > self.limits.connections_per_address:
            if not self._evict(address):
                refused = (429, "this address has too many connections")
        elif self._open > self.limits.connections and not self._evict():
            refused = (503, "the server has too many connections")
        if refused is None:
            self._waiting[connection] = address
        return refused

    def _evict(self, address: str | None = None) -> bool:
        """Close the connection, of this address or of any, that has waited longest for a request."""
        for each, its_address in self._waiting.items():
            if address is None or its_address == address:
                del self._waiting[each]
                each.drop()
                return True
        return False

    def waits(self, connection: BoundedHttpProtocol, address: str) -> None:
        """Note that a connection waits for its next request."""
        self._waiting[connection] = address

    def works(self, connection: BoundedHttpProtocol) -> None:
        """Note that a connection has sent the head of a request."""
        self._waiting.pop(connection, None)

    def leave(self, connection: BoundedHttpProtocol, address: str) -> None:
        """Remove a connection."""
        self._waiting.pop(connection, None)
        self._open -= 1
        self._by_address[address] -= 1
        if not self._by_address[address]:
            del self._by_address[address]


class _LimitExceededError(Exception):
    """Stops the parser: the request exceeds a limit."""


class BoundedHttpProtocol(HttpToolsProtocol):
    """The protocol of uvicorn with limits. The timers run only while a head or a body is incomplete after a read, so a
    request that arrives in one piece sets none."""

    table: ConnectionTable

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._limits = self.table.limits
        self._address = ""
        self._limit_exceeded: tuple[int, str] | None = None
        self._refused = self._entered = self._in_head = self._in_body = False
        self._head_size = self._headers_size = self._header_count = 0
        self._body_size = self._checked_size = 0
        self._head_timer: asyncio.TimerHandle | None = None
        self._body_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._address = self.client[0] if self.client else ""
        self._entered = True
        self._in_head = True
        refused = self.table.enter(self, self._address)
        if refused is not None:
            self._refuse(*refused)
        else:
            self._head_timer = self.loop.call_later(self._limits.head_timeout, self._head_is_late)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timers()
        self._leave()
        super().connection_lost(exc)

    def _leave(self, *_: object) -> None:
        if self._entered:
            self._entered = False
            self.table.leave(self, self._address)

    def drop(self) -> None:
        """Close a connection without a request, to make room for another."""
        self._stop_timers()
        self.transport.close()

    def data_received(self, data: bytes) -> None:
        if self._refused or self.parser is None:
            return
        began_before = self._in_head and self._head_size > 0
        if began_before:
            self._head_size += len(data)
        self._unset_keepalive_if_required()
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._upgrade()
            return
        except httptools.HttpParserError:
            self._refuse(*(self._limit_exceeded or (400, "the request is not valid HTTP")))
            return
        if began_before and self._in_head and self._head_size > self._limits.head_bytes:
            self._refuse(431, self._head_too_large)
            return
        self._set_timers()

    def _set_timers(self) -> None:
        if self._in_head and self._head_timer is None and self._head_size:
            self._head_timer = self.loop.call_later(self._limits.head_timeout, self._head_is_late)
        if self._in_body and self._body_timer is None and self._limits.body_rate:
            self._checked_size = self._body_size
            self._body_timer = self.loop.call_later(BODY_CHECK_S, self._check_body)

    def _stop_timers(self) -> None:
        for each in (self._head_timer, self._body_timer):
            if each is not None:
                each.cancel()
        self._head_timer = self._body_timer = None

    def _upgrade(self) -> None:
        self._stop_timers()
        if not self._should_upgrade():
            self._unsupported_upgrade_warning()
            return
        self.handle_websocket_upgrade()
        # The connection now belongs to another protocol, and is counted until that one loses it.
        successor: Any = self.transport.get_protocol()
        if successor is self or self.transport.is_closing():
            self._leave()
            return
        self.table.works(self)
        lost = successor.connection_lost

        def connection_lost(exc: Exception | None) -> None:
            self._leave()
            lost(exc)

        successor.connection_lost = connection_lost

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head = True
        self._head_size = 1  # it has begun
        self._headers_size = self._header_count = 0

    def on_url(self, url: bytes) -> None:
        if len(self.url) + len(url) > self._limits.url_bytes:
            self._stop_parser(414, f"the URL exceeds {self._limits.url_bytes:,} bytes")
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        # Trailers arrive here too, after the head of a chunked request, and count with its headers.
        self._header_count += 1
        self._headers_size += len(name) + len(value) + 4
        if self._header_count > self._limits.headers:
            self._stop_parser(431, f"the request has more than {self._limits.headers} headers")
        if self._headers_size > self._limits.head_bytes:
            self._stop_parser(431, self._head_too_large)
        super().on_header(name, value)

    @property
    def _head_too_large(self) -> str:
        return f"the request head exceeds {self._limits.head_bytes:,} bytes"

    def _stop_parser(self, status: int, detail: str) -> None:
        self._limit_exceeded = (status, detail)
        raise _LimitExceededError

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._in_body = True
        self._body_size = 0
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
        self.table.works(self)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._body_size += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._in_body = False
        self._head_size = 0
        if self._body_timer is not None:
            self._body_timer.cancel()
            self._body_timer = None
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self._in_body and not self.pipeline and not self.transport.is_closing():
            self.table.waits(self, self._address)

    def _head_is_late(self) -> None:
        self._head_timer = None
        self._refuse(408, f"the request head did not arrive within {self._limits.head_timeout:g} s")

    def _check_body(self) -> None:
        """Disconnect a client whose body arrives too slowly, or goes on after its response was sent."""
        self._body_timer = None
        if not self._in_body or self.transport.is_closing():
            return
        if self.cycle.response_complete:
            self.drop()
            return
        arrived = self._body_size - self._checked_size
        own_pause = self.flow.read_paused or self.cycle.waiting_for_100_continue
        if not own_pause and arrived < self._limits.body_rate * BODY_CHECK_S:
            self._refuse(408, f"the body arrives at less than {self._limits.body_rate:,} bytes per second")
            return
        self._set_timers()

    def _refuse(self, status: int, detail: str) -> None:
        """Send a problem document, unless a response is being sent already, and disconnect the client."""
        self._refused = True
        self._stop_timers()
        cycle: RequestResponseCycle | None = self.cycle
        open_response = False
        if cycle is not None and not cycle.response_complete:
            open_response = cycle.response_started or bool(self.pipeline)
            cycle.disconnected = True
            cycle.message_event.set()
        if open_response or self.transport.is_closing():
            self.transport.close()
            return
        self.transport.write(_refusal(status, detail))
        if len(self.table) > self._limits.connections + MAX_LINGERING:
            self.transport.close()
            return
        # Closing with unread bytes would reset the connection, and the client might never see the response.
        self.transport.write_eof()
        self._head_timer = self.loop.call_later(LINGER_S, self.transport.close)


def _refusal(status: int, detail: str) -> bytes:
    """Return a complete response."""
    body = msgspec.json.encode(problem(status, CODES[status], detail))
    retry = b"retry-after: 1\r\n" if status in {429, 503} else b""
    return b"%scontent-type: %s\r\ncontent-length: %d\r\n%sconnection: close\r\n\r\n%s" % (
        STATUS_LINE[status],
        MEDIA.encode(),
        len(body),
        retry,
        body,
    )


def bounded_protocol(limits: ConnectionLimits) -> type[BoundedHttpProtocol]:
    """Return the protocol of one server."""
    return type("ServerProtocol", (BoundedHttpProtocol,), {"table": ConnectionTable(limits)})
