"""Connections of the HTTP server, bounded before any request is authenticated.

uvicorn with httptools limits neither the size of a request head nor the time to send it, and `limit_concurrency` counts
requests only after their heads were read. The protocol here adds both, the number of connections in all and per
address, and the rate of a body. A client that exceeds a limit gets a problem document and is disconnected.

uvicorn also parses all that it has read, so a client decides how many requests wait in memory, and how much of a body
is parsed that nobody wants. Here bytes are parsed when they are needed: those of a request after the response to the
one before it, those of a body when the application receives them. The rest stays unparsed, and the connection is not
read while there is much of it. A body that goes on after its response ends the connection.

A client of a WebSocket receives events and has nothing to say but pongs and its own pings, for which it has a small
number of bytes per second.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from collections import Counter, OrderedDict
from functools import partial
from typing import Any

import httptools
import msgspec
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import CloseCode
from websockets.protocol import OPEN

from rune.server.acceptor import AbandonedRequests, Address, has_disconnected
from rune.server.responses import MEDIA, new_request_id, problem

CODES = {
    400: "BAD_REQUEST",
    408: "TOO_SLOW",
    414: "URL_TOO_LONG",
    429: "TOO_MANY_CONNECTIONS",
    431: "HEAD_TOO_LARGE",
    503: "OVERLOADED",
}
log = logging.getLogger("rune.server")

BODY_CHECK_S = 5.0
"""How often the rate of a body is checked, and how long a body may arrive at any rate."""

LINGER_S = 1.0
"""How long a rejected client may take to read its response and to disconnect."""

MAX_LINGERING = 100
"""Rejected connections beyond the limit that are closed gently."""

MAX_UNPARSED_BYTES = 64 * 1024
"""Beyond these a connection is not read."""

MAX_UNWANTED_BYTES = 16 * 1024
"""Of a body, after its response; within them the connection can be used for another request."""

CHUNKED_PIECE_BYTES = 512
"""The least that is parsed at a time of a body without a stated length."""

MAX_SMALL_CHUNKS = 1_024
MIN_CHUNK_BYTES = 64
"""On average, in a body with more chunks than `MAX_SMALL_CHUNKS`; each costs as much time as these bytes or more."""

CUT_OFF = "cut_off"
"""Set in the scope of a request whose response is left unfinished on purpose."""

STALL_S = 30.0
"""How long a client may take to read anything of its response."""

SOCKET_BYTES = 4 * 1024
"""What a client of a WebSocket may send at once."""

SOCKET_BYTES_PER_S = 512


class ConnectionLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What a client may use before it is authenticated."""

    head_bytes: int = 64 * 1024
    headers: int = 100
    url_bytes: int = 8 * 1024
    head_timeout: float = 10.0  # seconds from the first byte of a head, or from the connection, to its end
    body_rate: int = 1024  # bytes per second, on average over BODY_CHECK_S; 0: any
    connections: int = 4_096
    connections_per_address: int = 512
    proxies: tuple[str, ...] = ()  # addresses and networks, whose connections are those of many clients


class ConnectionTable:
    """The open connections of a server. If it is full, the connection that has waited longest for a request is closed
    in favour of a new one; while all are in use, a new one is rejected."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self.limits = limits
        self._by_address: Counter[str] = Counter()
        self._open = 0
        self._waiting: OrderedDict[BoundedHttpProtocol, str] = OrderedDict()
        self._proxies = [ipaddress.ip_network(each) for each in limits.proxies]

    def __len__(self) -> int:
        return self._open

    def enter(self, connection: BoundedHttpProtocol, address: str) -> tuple[int, str] | None:
        """Add a connection. Return the status and the reason if there is no room for it."""
        self._open += 1
        self._by_address[address] += 1
        refused: tuple[int, str] | None = None
        if self._by_address[address] > self.limits.connections_per_address and not self._is_proxy(address):
            if not self._evict(address):
                refused = (429, "this address has too many connections")
        elif self._open > self.limits.connections and not self._evict():
            refused = (503, "the server has too many connections")
        if refused is None:
            self._waiting[connection] = address
        return refused

    def _is_proxy(self, address: str) -> bool:
        return any(ipaddress.ip_address(address) in each for each in self._proxies)

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


class _BodyFlow(FlowControl):
    """Tells the protocol when the application receives, and leaves it to the protocol when to read."""

    def __init__(self, transport: asyncio.Transport, protocol: BoundedHttpProtocol) -> None:
        super().__init__(transport)
        self._protocol = protocol

    def resume_reading(self) -> None:
        self.read_paused = False
        self._protocol.wants_body()

    def pause_reading(self) -> None:
        self.read_paused = True


class BoundedHttpProtocol(HttpToolsProtocol):
    """The protocol of uvicorn with limits. The timers run only while a head or a body is incomplete after a read, so a
    request that arrives in one piece sets none."""

    table: ConnectionTable

    def __init__(
        self, *arguments: Any, address: Address, abandoned: AbandonedRequests, **options: Any
    ) -> None:
        """`address` is that of the client, which a connection that was reset does not tell any more."""
        super().__init__(*arguments, **options)
        self._client_address = address
        self._abandoned = abandoned
        self._limits = self.table.limits
        self._address = ""
        self._limit_exceeded: tuple[int, str] | None = None
        self._refused = self._entered = self._in_head = self._in_body = False
        self._head_size = self._headers_size = self._header_count = 0
        self._body_size = self._checked_size = 0
        self._head_timer: asyncio.TimerHandle | None = None
        self._body_timer: asyncio.TimerHandle | None = None
        self._stall_timer: asyncio.TimerHandle | None = None
        self._unparsed = b""
        self._body_wanted = self._parsing = False
        self._unwanted_size = self._chunks = 0
        self._content_length: int | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.flow = _BodyFlow(transport, self)
        self.client = self._client_address
        self.ws_protocol_class = partial(BoundedSocketProtocol, address=self.client)  # type: ignore[assignment]
        self._address = self.client[0]
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
        self._unparsed = b""
        self._forget_request()
        self.cycle = None  # type: ignore[assignment]

    def _forget_request(self) -> None:
        """Drop the head of a request, of which the application has its own reference while it needs it. Otherwise a
        connection keeps it until its next request, and the garbage collector after the connection was closed."""
        self.headers = []
        self.url = b""
        self.scope = None  # type: ignore[assignment]

    def _forget_cycle(self) -> None:
        """Drop what an answered request has left: its head, and the part of its body that was not received."""
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is not None:
            cycle.scope = {}  # type: ignore[typeddict-item]
            cycle.body = bytearray()

    def _leave(self, *_: object) -> None:
        if self._entered:
            self._entered = False
            self.table.leave(self, self._address)

    def drop(self) -> None:
        """Close a connection without a request, to make room for another."""
        self._stop_timers()
        self.transport.close()

    def data_received(self, data: bytes) -> None:
        if not self._is_usable():
            return
        self._unparsed = self._unparsed + data if self._unparsed else data
        self._parse()

    def wants_body(self) -> None:
        """Parse what has arrived of a body: the application receives it, or the response is complete without it."""
        self._body_wanted = True
        self._parse()

    def _is_usable(self) -> bool:
        return not self._refused and bool(self.parser) and not self.transport.is_closing()

    @property
    def _is_answering(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is not None and not cycle.response_complete

    @property
    def _waits_for_application(self) -> bool:
        """Whether nothing may be parsed until the application receives or responds."""
        if not self._is_answering:
            return False
        return not self._in_body or not self._body_wanted or self.flow.read_paused

    def _parse(self) -> None:
        """Parse what has arrived, as far as it is needed now."""
        if self._parsing or not self._is_usable():
            return
        if self._unparsed:
            self._parsing = True
            try:
                self._parse_pieces()
            finally:
                self._parsing = False
        if not self._is_usable():
            return
        self._set_timers()
        if len(self._unparsed) < MAX_UNPARSED_BYTES and not (self._unparsed and self._is_pipelined):
            self.transport.resume_reading()
        else:
            self.transport.pause_reading()

    @property
    def _is_pipelined(self) -> bool:
        """Whether what is unparsed belongs to the next request. A connection with none is read on, since only so the
        end of it is noticed."""
        return self._is_answering and not self._in_body

    def _parse_pieces(self) -> None:
        """Parse requests one by one. The parser cannot be stopped, so it gets no more than the next one may need."""
        data, start = self._unparsed, 0
        while not self._waits_for_application:
            if not self._in_body and not self._head_size:
                start = len(data) - len(data[start:].lstrip(b"\r\n"))  # empty lines before a request
            if start >= len(data):
                break
            self._unset_keepalive_if_required()
            end = self._end_of_piece(data, start)
            if not self._parse_piece(data[start:end]):
                self._unparsed = b""
                return
            start = end
        self._unparsed = data[start:]

    def _end_of_piece(self, data: bytes, start: int) -> int:
        """Return where the request may end at the earliest: a body after its length, a head and the last chunk with an
        empty line. A chunk may consist of such lines, and is not cut at all of them: few requests fit in between."""
        if self._in_body and self._content_length is not None:
            return min(len(data), start + self._content_length - self._body_size)
        found = data.find(b"\r\n\r\n", start + (CHUNKED_PIECE_BYTES if self._in_body else 0))
        return len(data) if found < 0 else found + 4

    def _parse_piece(self, piece: bytes) -> bool:
        """Parse bytes that end at most one request; return whether more may follow."""
        began_before = self._in_head and self._head_size > 0
        if began_before:
            self._head_size += len(piece)
        if self._in_body and not self._is_answering:
            self._unwanted_size += len(piece)
            if self._unwanted_size > MAX_UNWANTED_BYTES:
                self._disconnect()
                return False
        try:
            self.parser.feed_data(piece)
        except httptools.HttpParserUpgrade:
            self._upgrade()
            return False
        except httptools.HttpParserError:
            self._refuse(*(self._limit_exceeded or (400, "the request is not valid HTTP")))
            return False
        if began_before and self._in_head and self._head_size > self._limits.head_bytes:
            self._refuse(431, self._head_too_large)
            return False
        return True

    def _set_timers(self) -> None:
        if self._in_head and self._head_timer is None and self._head_size:
            self._head_timer = self.loop.call_later(self._limits.head_timeout, self._head_is_late)
        arrives = self._in_body and not self._waits_for_application
        if arrives and self._body_timer is None and self._limits.body_rate:
            self._checked_size = self._body_size
            self._body_timer = self.loop.call_later(BODY_CHECK_S, self._check_body)

    def _stop_timers(self) -> None:
        for each in (self._head_timer, self._body_timer, self._stall_timer):
            if each is not None:
                each.cancel()
        self._head_timer = self._body_timer = self._stall_timer = None

    def _upgrade(self) -> None:
        self._stop_timers()
        if not self._should_upgrade():
            self._unsupported_upgrade_warning()
            return
        self.handle_websocket_upgrade()
        self._forget_request()
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
        self._content_length = None

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
        if name.lower() == b"content-length":
            self._content_length = int(value)  # the parser has checked it

    @property
    def _head_too_large(self) -> str:
        return f"the request head exceeds {self._limits.head_bytes:,} bytes"

    def _stop_parser(self, status: int, detail: str) -> None:
        self._limit_exceeded = (status, detail)
        raise _LimitExceededError

    def on_headers_complete(self) -> None:
        hosts = sum(name == b"host" for name, _ in self.headers)
        if hosts > 1 or (not hosts and self.parser.get_http_version() == "1.1"):
            self._stop_parser(400, f"the request has {hosts} `Host` headers, not one")
        self._in_head = False
        self._in_body = True
        self._body_size = self._unwanted_size = self._chunks = 0
        self._body_wanted = False
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
        self.table.works(self)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._body_size += len(body)
        super().on_body(body)

    def on_chunk_header(self) -> None:
        self._chunks += 1
        if self._chunks > MAX_SMALL_CHUNKS and self._body_size < self._chunks * MIN_CHUNK_BYTES:
            size = f"less than {MIN_CHUNK_BYTES} bytes on average"
            self._stop_parser(400, f"the body has more than {MAX_SMALL_CHUNKS:,} chunks of {size}")

    def on_message_complete(self) -> None:
        self._in_body = False
        self._head_size = 0
        if self._body_timer is not None:
            self._body_timer.cancel()
            self._body_timer = None
        super().on_message_complete()

    def on_response_complete(self) -> None:
        # The next request is parsed after the keep-alive timer is set, which it cancels.
        self._parsing = True
        super().on_response_complete()
        self._parsing = False
        if not self._is_answering:
            if not self._in_head:  # the parser may have begun with the next one
                self._forget_request()
            self._forget_cycle()
        self._parse()
        if self._is_usable() and not self._in_body and not self._is_answering:
            self.table.waits(self, self._address)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        super()._start_asgi_task(cycle, partial(self._run_unless_abandoned, cycle, app))

    async def _run_unless_abandoned(
        self, cycle: RequestResponseCycle, app: Any, scope: Any, receive: Any, send: Any
    ) -> None:
        """Run the application, unless the client has disconnected and many others have, too."""
        lost = cycle.disconnected or has_disconnected(self.transport.get_extra_info("socket"))
        if lost and not self._abandoned.take():
            cycle.disconnected = True
            self.transport.abort()
            return
        await app(scope, receive, send)
        if scope.get(CUT_OFF):
            cycle.disconnected = True
            self.transport.close()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_reader()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None

    def _watch_reader(self) -> None:
        unsent = self.transport.get_write_buffer_size()
        self._stall_timer = self.loop.call_later(STALL_S, self._check_reader, unsent)

    def _check_reader(self, unsent_before: int) -> None:
        """Disconnect a client that has not read anything of its response for a while."""
        if self.transport.get_write_buffer_size() < unsent_before:
            self._watch_reader()
        else:
            self._stall_timer = None
            self.transport.abort()

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
        own_pause = self._waits_for_application or self.cycle.waiting_for_100_continue
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
        id = new_request_id()
        log.info("request %s from %s was refused: %s", id, self._address, CODES[status])
        self.transport.write(_refusal(status, detail, id))
        self._disconnect()

    def _disconnect(self) -> None:
        """Parse no more, and disconnect the client when it may have read its response."""
        self._refused = True
        self._stop_timers()
        if len(self.table) > self._limits.connections + MAX_LINGERING:
            self.transport.close()
            return
        # Closing with unread bytes would reset the connection, and the client might never see the response.
        self.transport.resume_reading()
        self.transport.write_eof()
        self._head_timer = self.loop.call_later(LINGER_S, self.transport.close)


class BoundedSocketProtocol(WebSocketsSansIOProtocol):
    """The WebSocket protocol of uvicorn with a number of bytes that a client may send per second: each frame, even an
    empty one, costs as much time as a small request."""

    def __init__(self, *arguments: Any, address: Address, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._address = address
        self._credit = float(SOCKET_BYTES)
        self._credited_at = self.loop.time()
        self._cut_off = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.client = self._address

    def data_received(self, data: bytes) -> None:
        if self._cut_off:
            return
        # The first bytes are the request, which `BoundedHttpProtocol` has bounded.
        if self.handshake_initiated and not self._afford(len(data)):
            self._disconnect()
            return
        super().data_received(data)

    async def send(self, message: Any) -> None:
        """Send a message. A handshake that was refused, or whose client has disconnected, is over; uvicorn would log an
        error for it."""
        await super().send(message)
        if self.close_sent or self.transport.is_closing():
            self.handshake_complete = True

    def _afford(self, size: int) -> bool:
        now = self.loop.time()
        self._credit = min(SOCKET_BYTES, self._credit + (now - self._credited_at) * SOCKET_BYTES_PER_S)
        self._credited_at = now
        self._credit -= size
        return self._credit >= 0

    def _disconnect(self) -> None:
        """Say why and disconnect. Until then, what arrives is dropped: closing with unread bytes would reset the
        connection."""
        self._cut_off = True
        self.stop_keepalive()
        if self.close_sent or self.conn.state is not OPEN:
            self.transport.close()
            return
        reason = f"a client may send {SOCKET_BYTES_PER_S} bytes per second"
        self.conn.send_close(CloseCode.POLICY_VIOLATION, reason)
        self.transport.write(b"".join(self.conn.data_to_send()))
        self.close_sent = True
        self.queue.put_nowait(
            {"type": "websocket.disconnect", "code": CloseCode.POLICY_VIOLATION, "reason": reason}
        )
        self.transport.resume_reading()
        self.close_timer = self.loop.call_later(LINGER_S, self.transport.close)


def _refusal(status: int, detail: str, request_id: str) -> bytes:
    """Return a complete response."""
    document = msgspec.structs.replace(problem(status, CODES[status], detail), request_id=request_id)
    body = msgspec.json.encode(document)
    retry = b"retry-after: 1\r\n" if status in {429, 503} else b""
    return (
        b"%scontent-type: %s\r\ncontent-length: %d\r\nx-request-id: %s\r\n%sconnection: close\r\n\r\n%s"
        % (
            STATUS_LINE[status],
            MEDIA.encode(),
            len(body),
            request_id.encode(),
            retry,
            body,
        )
    )


def bounded_protocol(limits: ConnectionLimits) -> type[BoundedHttpProtocol]:
    """Return the protocol of one server."""
    return type("ServerProtocol", (BoundedHttpProtocol,), {"table": ConnectionTable(limits)})
