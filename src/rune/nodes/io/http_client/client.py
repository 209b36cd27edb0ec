"""One request written to a connection, and the answer read from it.

aiohttp opens and keeps the connections and reads what comes back. What its sessions do besides, for cookies, traces and
redirects, no node needs, and it takes longer than everything here.

Deadlines: how long calls may take. One timer serves all calls that were given the same number of seconds, because
they run out in the order in which they began; a timer for each costs more than much of what a call does.

The HTTP client: one pool of connections for a process, every connection checked by the guard.
"""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
from collections import OrderedDict
from collections.abc import Mapping
from contextvars import ContextVar
from ipaddress import ip_address
from types import TracebackType
from typing import Any

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.connector import Connection
from aiohttp.http import HttpProcessingError, StreamWriter
from yarl import URL

from rune.nodes.io.http_client.ssrf import Address, AddressGuard, Target, blocked

LARGE_BYTES = 256 * 1024
BUFFER_BYTES = 64 * 1024

_BARE = frozenset({"GET", "HEAD", "OPTIONS"})
"""Methods that say nothing of a body that they do not have."""

_FRAMING = frozenset({"content-length", "transfer-encoding"})
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


class Response:
    """An answer whose body is as it comes."""

    __slots__ = ("_connection", "_writing", "content", "headers", "status")

    def __init__(self, connection: Connection, message: Any, content: Any) -> None:
        self._connection = connection
        self._writing: asyncio.Task[None] | None = None
        self.status: int = message.code
        self.headers: Mapping[str, str] = message.headers
        self.content: aiohttp.StreamReader = content

    @property
    def content_length(self) -> int | None:
        """How long the body is, if the server says so."""
        announced = self.headers.get("Content-Length")
        return int(announced) if announced is not None and announced.isdecimal() else None

    async def whole(self) -> bytes:
        """The rest of the body."""
        content = self.content
        if content.is_eof() and content.exception() is None:
            return content.read_nowait()
        return await content.read()

    def written_by(self, writing: asyncio.Task[None] | None) -> None:
        """Who may still be writing the request."""
        self._writing = writing

    def close(self) -> None:
        """Nothing more is read. The connection is kept if all of the request and of the answer went over it."""
        if self._writing is not None and not self._writing.done():
            self._writing.cancel()
            self._connection.close()
        else:
            self._connection.release()


def head(method: str, where: Target, headers: Mapping[str, str], body: bytes | None) -> bytes:
    """The request line and headers. What could be read as two headers or two requests is refused."""
    if not _FRAMING.isdisjoint(headers):
        raise ValueError("a header that belongs to the connection cannot be set")
    lines = [f"{method} {where.resource} HTTP/1.1"]
    if "host" not in headers:
        lines.append(f"Host: {where.authority}")
    lines += [f"{name}: {value}" for name, value in headers.items()]
    if body is not None:
        lines.append(f"Content-Length: {len(body)}")
    elif method not in _BARE:
        lines.append("Content-Length: 0")
    if " " in where.resource or _CONTROL.search("\t".join(lines)):
        raise ValueError("a header or the address holds a line break or control character")
    lines.append("\r\n")
    return "\r\n".join(lines).encode()


async def transfer(connection: Connection, method: str, start: bytes, body: bytes | None) -> Response:
    """Send a request over a connection that is this one's alone, and wait for the head of its answer."""
    writing: asyncio.Task[None] | None = None
    try:
        protocol, transport = connection.protocol, connection.transport
        if protocol is None or transport is None:
            raise aiohttp.ServerDisconnectedError
        protocol.set_response_params(
            skip_payload=method == "HEAD",
            read_until_eof=True,
            auto_decompress=False,
            read_bufsize=BUFFER_BYTES,
        )
        if body is not None and len(body) > LARGE_BYTES:
            transport.write(start)
            writing = asyncio.create_task(_write(protocol, body))
        else:
            transport.write(start + body if body else start)
        while True:
            message, content = await protocol.read()
            if message.code >= 200 or message.code == 101:
                break
        response = Response(connection, message, content)
        response.written_by(writing)
        return response
    except BaseException as error:
        if writing is not None:
            writing.cancel()
        connection.close()
        if isinstance(error, HttpProcessingError):
            raise aiohttp.ClientPayloadError(error.message) from None
        raise


async def _write(protocol: Any, body: bytes) -> None:
    """What is large is written piece by piece, so that it does not hold up the others."""
    writer = StreamWriter(protocol, asyncio.get_running_loop())
    view = memoryview(body)
    try:
        for start in range(0, len(body), BUFFER_BYTES):
            await writer.write(view[start : start + BUFFER_BYTES])
            await writer.drain()
    except (aiohttp.ClientError, OSError):
        return  # whoever waits for the answer hears of it from the connection


class Deadline:
    """A block that is cancelled when its time is over, and then raises TimeoutError."""

    __slots__ = ("_asked", "_here", "_line", "over", "when")

    _here: asyncio.Task[object]

    def __init__(self, line: DeadlineBucket) -> None:
        self._line = line
        self.when = 0.0
        self.over = False

    def __enter__(self) -> None:
        here = asyncio.current_task()
        assert here is not None
        self._asked = here.cancelling()
        self._here = here
        self._line.add(self)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self.over:
            self._line.remove(self)
        # Somebody else may want it to stop as well: that is not ours to turn into a failure.
        elif self._here.uncancel() <= self._asked and kind is asyncio.CancelledError:
            raise TimeoutError from error

    def end(self) -> None:
        """The time is over."""
        self.over = True
        self._here.cancel()


class DeadlineBucket:
    """Those who were given the same time, in the order in which it runs out."""

    def __init__(self, lines: Deadlines, seconds: float) -> None:
        self._lines = lines
        self._seconds = seconds
        self._loop = asyncio.get_running_loop()
        self._waiting: OrderedDict[Deadline, None] = OrderedDict()
        self._timer: asyncio.TimerHandle | None = None

    def add(self, one: Deadline) -> None:
        """Somebody begins."""
        one.when = self._loop.time() + self._seconds
        self._waiting[one] = None
        if self._timer is None:
            self._timer = self._loop.call_at(one.when, self._ring)

    def remove(self, one: Deadline) -> None:
        """Somebody is done in time."""
        self._waiting.pop(one, None)

    def _ring(self) -> None:
        now = self._loop.time()
        while self._waiting:
            first = next(iter(self._waiting))
            if first.when > now:
                self._timer = self._loop.call_at(first.when, self._ring)
                return
            del self._waiting[first]
            first.end()
        self._timer = None
        self._lines.forget(self._seconds)

    def close(self) -> None:
        """Nobody will be told any more."""
        if self._timer is not None:
            self._timer.cancel()


class Deadlines:
    """The lines, by seconds."""

    def __init__(self) -> None:
        self._lines: dict[float, DeadlineBucket] = {}

    def within(self, seconds: float) -> Deadline:
        """So many seconds for a block."""
        line = self._lines.get(seconds)
        if line is None:
            line = self._lines[seconds] = DeadlineBucket(self, seconds)
        return Deadline(line)

    def forget(self, seconds: float) -> None:
        """Nobody is in this line any more."""
        self._lines.pop(seconds, None)

    def close(self) -> None:
        """Stop the timers."""
        for line in self._lines.values():
            line.close()
        self._lines.clear()


CONNECT_SECONDS = 5.0
IDLE_SECONDS = 15.0
MAX_ROUTES = 1024
MAX_PEERS = 64

_TIMEOUTS = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS)
_REPEATABLE = frozenset({"GET", "HEAD", "OPTIONS", "PUT", "DELETE"})
_passed: ContextVar[list[Address] | None] = ContextVar("passed", default=None)
"""The addresses that the guard let through for the request of this task."""


class Route:
    """How an origin is reached, and the ends of connections that the guard has let it have."""

    __slots__ = ("host", "peers", "request")

    def __init__(self, where: Target, verify: bool) -> None:
        url = URL(f"{where.scheme}://{where.authority}/", encoded=True)
        if url.host != where.host or url.port != where.port or url.user is not None:
            raise blocked(where.url, "its host can be read in two ways")
        self.host = where.host
        self.request = aiohttp.ClientRequest("GET", url, loop=asyncio.get_running_loop(), ssl=verify)
        self.peers: set[str] = set()


class Client:
    """Sends single requests; redirects, decoding and limits are its caller's."""

    def __init__(self, guard: AddressGuard, per_host: int) -> None:
        self._guard = guard
        self._lanes = HostLimiter(per_host)
        self._deadlines = Deadlines()
        self._routes: dict[tuple[str, str, int, bool], Route] = {}
        self._connector = _Connector(
            guard,
            resolver=_Resolver(guard),
            use_dns_cache=False,
            limit=0,
            keepalive_timeout=IDLE_SECONDS,
            ssl=ssl.create_default_context(),
        )

    def send(
        self, method: str, where: Target, headers: Mapping[str, str], body: bytes | None, *, verify: bool
    ) -> PendingRequest:
        """One request; entered, it is the answer, whose body is as it came."""
        key = (where.scheme, where.host, where.port, verify)
        route = self._routes.get(key)
        if route is None:
            self._guard.check_target(where)
            if len(self._routes) >= MAX_ROUTES:
                self._routes.clear()
            route = self._routes[key] = Route(where, verify)
        return PendingRequest(self._connector, route, method, head(method, where, headers, body), body)

    def lane(self, where: Target) -> HostLimit:
        """A place among the calls to a host; there are only so many at once."""
        return self._lanes.limit(where.host)

    def within(self, seconds: float) -> Deadline:
        """So long may a block take."""
        return self._deadlines.within(seconds)

    async def close(self) -> None:
        """Close every connection."""
        self._deadlines.close()
        await self._connector.close()


class PendingRequest:
    """A request under way."""

    __slots__ = ("_body", "_connector", "_head", "_method", "_response", "_route")

    def __init__(
        self, connector: _Connector, route: Route, method: str, head: bytes, body: bytes | None
    ) -> None:
        self._connector = connector
        self._route = route
        self._method = method
        self._head = head
        self._body = body

    async def __aenter__(self) -> Response:
        connection = await self._connector.connection(self._route)
        try:
            self._response = await transfer(connection, self._method, self._head, self._body)
        except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError):
            # A connection that was kept may have been closed on the other end: what may be repeated is, once.
            if self._method not in _REPEATABLE:
                raise
            connection = await self._connector.connection(self._route)
            self._response = await transfer(connection, self._method, self._head, self._body)
        return self._response

    async def __aexit__(self, *exc: Any) -> None:
        self._response.close()


class _Resolver(AbstractResolver):
    """Asks the guard, so that nothing is connected to that it did not see."""

    def __init__(self, guard: AddressGuard) -> None:
        self._guard = guard

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        found = await self._guard.addresses(host, port)
        passed = _passed.get()
        if passed is not None:
            passed.extend(found)
        return [
            ResolveResult(
                hostname=host,
                host=str(each),
                port=port,
                family=socket.AF_INET if each.version == 4 else socket.AF_INET6,
                proto=0,
                flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
            )
            for each in found
        ]

    async def close(self) -> None:
        """There is nothing to close."""


class _Connector(aiohttp.TCPConnector):
    """Looks at who is on the other end before anything is sent, on a new connection and on one that was kept."""

    def __init__(self, guard: AddressGuard, **options: Any) -> None:
        super().__init__(**options)
        self._guard = guard

    async def connection(self, route: Route) -> Connection:
        """A connection for one request."""
        passed: list[Address] = []
        token = _passed.set(passed)
        try:
            connection = await self.connect(route.request, [], _TIMEOUTS)
        except TimeoutError as late:
            raise aiohttp.ConnectionTimeoutError(f"no connection to {route.host} in time") from late
        finally:
            _passed.reset(token)
        transport = connection.transport
        peer = transport.get_extra_info("peername") if transport is not None else None
        if peer is None or not self._expected(route, peer[0], passed):
            connection.close()
            reason = "the connection leads to another address than was allowed"
            raise blocked(str(route.request.url), reason)
        return connection

    def _expected(self, route: Route, peer: str, passed: list[Address]) -> bool:
        if peer in route.peers and not passed:
            return True
        address = ip_address(peer)
        if (passed and address not in passed) or not self._guard.permits(route.host, address):
            return False
        if len(route.peers) >= MAX_PEERS:
            route.peers.clear()
        route.peers.add(peer)
        return True


class HostLimit:
    """One host's share of the calls under way."""

    def __init__(self, lanes: HostLimiter, host: str) -> None:
        self._lanes = lanes
        self._host = host
        self._free = asyncio.Semaphore(lanes.width)
        self.users = 0

    async def __aenter__(self) -> None:
        self.users += 1
        try:
            await self._free.acquire()
        except BaseException:
            self._leave()
            raise

    async def __aexit__(self, *exc: object) -> None:
        self._free.release()
        self._leave()

    def _leave(self) -> None:
        self.users -= 1
        if self.users == 0:
            self._lanes.forget(self._host)


class HostLimiter:
    """How many calls to one host may be under way; hosts that nobody calls are forgotten."""

    def __init__(self, width: int) -> None:
        self.width = width
        self._lanes: dict[str, HostLimit] = {}

    def limit(self, host: str) -> HostLimit:
        """The lane of a host."""
        found = self._lanes.get(host)
        if found is None:
            found = self._lanes[host] = HostLimit(self, host)
        return found

    def forget(self, host: str) -> None:
        """Nobody is in this lane any more."""
        self._lanes.pop(host, None)
