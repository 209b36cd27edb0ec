"""The HTTP client of a process: a connection pool whose connections are checked by the address guard.

aiohttp opens and pools the connections and parses responses. Its sessions are not used: their cookie, tracing and
redirect handling costs more time than the rest of a call. Calls with the same timeout share one timer, because they
expire in the order in which they started.
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

# Larger request bodies are written in pieces of BUFFER_BYTES.
LARGE_BODY_BYTES = 256 * 1024
BUFFER_BYTES = 64 * 1024
CONNECT_TIMEOUT_S = 5.0
IDLE_TIMEOUT_S = 15.0
MAX_ROUTES = 1024
MAX_PEERS = 64

# Methods that send no Content-Length without a body.
_BODYLESS_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_REPEATABLE_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "PUT", "DELETE"})

_FRAMING = frozenset({"content-length", "transfer-encoding"})
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_TIMEOUTS = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_S)

_allowed_addresses: ContextVar[list[Address] | None] = ContextVar("allowed_addresses", default=None)
"""The addresses that the guard allowed for the request of the current task."""


class Response:
    """A response whose body is read on demand and not decoded."""

    __slots__ = ("_connection", "_writer", "content", "headers", "status")

    def __init__(self, connection: Connection, message: Any, content: Any) -> None:
        self._connection = connection
        self._writer: asyncio.Task[None] | None = None
        self.status: int = message.code
        self.headers: Mapping[str, str] = message.headers
        self.content: aiohttp.StreamReader = content

    @property
    def content_length(self) -> int | None:
        """Return the announced length of the body, or None."""
        announced = self.headers.get("Content-Length")
        return int(announced) if announced is not None and announced.isdecimal() else None

    async def read_body(self) -> bytes:
        """Read the rest of the body."""
        content = self.content
        if content.is_eof() and content.exception() is None:
            return content.read_nowait()
        return await content.read()

    def set_writer(self, writer: asyncio.Task[None] | None) -> None:
        """Set the task that may still be writing the request body."""
        self._writer = writer

    def close(self) -> None:
        """Stop reading. The connection is reused if the request and the response were transferred completely."""
        if self._writer is not None and not self._writer.done():
            self._writer.cancel()
            self._connection.close()
        else:
            self._connection.release()


def head(method: str, where: Target, headers: Mapping[str, str], body: bytes | None) -> bytes:
    """Encode the request line and headers; reject anything that could be parsed as two headers or requests."""
    if not _FRAMING.isdisjoint(headers):
        raise ValueError("connection headers cannot be set")
    lines = [f"{method} {where.resource} HTTP/1.1"]
    if "host" not in headers:
        lines.append(f"Host: {where.authority}")
    lines += [f"{name}: {value}" for name, value in headers.items()]
    if body is not None:
        lines.append(f"Content-Length: {len(body)}")
    elif method not in _BODYLESS_METHODS:
        lines.append("Content-Length: 0")
    if " " in where.resource or _CONTROL.search("\t".join(lines)):
        raise ValueError("a header or the URL contains a line break or control character")
    lines.append("\r\n")
    return "\r\n".join(lines).encode()


async def transfer(connection: Connection, method: str, start: bytes, body: bytes | None) -> Response:
    """Send a request over an exclusively held connection and wait for the head of the response."""
    writer: asyncio.Task[None] | None = None
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
        if body is not None and len(body) > LARGE_BODY_BYTES:
            transport.write(start)
            writer = asyncio.create_task(_write_body(protocol, body))
        else:
            transport.write(start + body if body else start)
        while True:
            message, content = await protocol.read()
            if message.code >= 200 or message.code == 101:
                break
        response = Response(connection, message, content)
        response.set_writer(writer)
        return response
    except BaseException as error:
        if writer is not None:
            writer.cancel()
        connection.close()
        if isinstance(error, HttpProcessingError):
            raise aiohttp.ClientPayloadError(error.message) from None
        raise


async def _write_body(protocol: Any, body: bytes) -> None:
    """Write a large body in pieces, so that it does not block other calls."""
    writer = StreamWriter(protocol, asyncio.get_running_loop())
    view = memoryview(body)
    try:
        for start in range(0, len(body), BUFFER_BYTES):
            await writer.write(view[start : start + BUFFER_BYTES])
            await writer.drain()
    except (aiohttp.ClientError, OSError):
        # The task that reads the response gets the error from the connection.
        return


class Deadline:
    """A block that is cancelled after its timeout and then raises TimeoutError."""

    __slots__ = ("_bucket", "_cancellations", "_task", "expired", "when")

    _task: asyncio.Task[object]

    def __init__(self, bucket: DeadlineBucket) -> None:
        self._bucket = bucket
        self.when = 0.0
        self.expired = False

    def __enter__(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._cancellations = task.cancelling()
        self._task = task
        self._bucket.add(self)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self.expired:
            self._bucket.remove(self)
        # If the task was cancelled from outside as well, the cancellation must not become a timeout.
        elif self._task.uncancel() <= self._cancellations and kind is asyncio.CancelledError:
            raise TimeoutError from error

    def expire(self) -> None:
        """Cancel the task in the block."""
        self.expired = True
        self._task.cancel()


class DeadlineBucket:
    """Deadlines with the same timeout, in the order in which they expire."""

    def __init__(self, owner: Deadlines, seconds: float) -> None:
        self._owner = owner
        self._seconds = seconds
        self._loop = asyncio.get_running_loop()
        self._pending: OrderedDict[Deadline, None] = OrderedDict()
        self._timer: asyncio.TimerHandle | None = None

    def add(self, deadline: Deadline) -> None:
        """Start a deadline."""
        deadline.when = self._loop.time() + self._seconds
        self._pending[deadline] = None
        if self._timer is None:
            self._timer = self._loop.call_at(deadline.when, self._expire_due)

    def remove(self, deadline: Deadline) -> None:
        """Remove a deadline whose block finished in time."""
        self._pending.pop(deadline, None)

    def _expire_due(self) -> None:
        now = self._loop.time()
        while self._pending:
            first = next(iter(self._pending))
            if first.when > now:
                self._timer = self._loop.call_at(first.when, self._expire_due)
                return
            del self._pending[first]
            first.expire()
        self._timer = None
        self._owner.forget(self._seconds)

    def close(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()


class Deadlines:
    """The buckets of a process, by timeout in seconds."""

    def __init__(self) -> None:
        self._buckets: dict[float, DeadlineBucket] = {}

    def within(self, seconds: float) -> Deadline:
        """Return a deadline for a block."""
        bucket = self._buckets.get(seconds)
        if bucket is None:
            bucket = self._buckets[seconds] = DeadlineBucket(self, seconds)
        return Deadline(bucket)

    def forget(self, seconds: float) -> None:
        """Remove an empty bucket."""
        self._buckets.pop(seconds, None)

    def close(self) -> None:
        """Stop all timers."""
        for bucket in self._buckets.values():
            bucket.close()
        self._buckets.clear()


class Route:
    """The connection parameters of an origin and the peer addresses that the guard has allowed for it."""

    __slots__ = ("host", "peers", "request")

    def __init__(self, where: Target, verify: bool) -> None:
        url = URL(f"{where.scheme}://{where.authority}/", encoded=True)
        if url.host != where.host or url.port != where.port or url.user is not None:
            raise blocked(where.url, "its host is ambiguous")
        self.host = where.host
        self.request = aiohttp.ClientRequest("GET", url, loop=asyncio.get_running_loop(), ssl=verify)
        self.peers: set[str] = set()


class Client:
    """Sends single requests; redirects, decoding and size limits are up to the caller."""

    def __init__(self, guard: AddressGuard, per_host: int) -> None:
        self._guard = guard
        self._host_limits = HostLimiter(per_host)
        self._deadlines = Deadlines()
        self._routes: dict[tuple[str, str, int, bool], Route] = {}
        self._connector = _Connector(
            guard,
            resolver=_Resolver(guard),
            use_dns_cache=False,
            limit=0,
            keepalive_timeout=IDLE_TIMEOUT_S,
            ssl=ssl.create_default_context(),
        )

    def send(
        self, method: str, where: Target, headers: Mapping[str, str], body: bytes | None, *, verify: bool
    ) -> PendingRequest:
        """Prepare a request; entering it sends it and yields the response with its raw body."""
        key = (where.scheme, where.host, where.port, verify)
        route = self._routes.get(key)
        if route is None:
            self._guard.check_target(where)
            if len(self._routes) >= MAX_ROUTES:
                self._routes.clear()
            route = self._routes[key] = Route(where, verify)
        return PendingRequest(self._connector, route, method, head(method, where, headers, body), body)

    def host_limit(self, where: Target) -> HostLimit:
        """Return the concurrency limit of a host, to be entered around a call."""
        return self._host_limits.limit(where.host)

    def within(self, seconds: float) -> Deadline:
        """Return a deadline for a block."""
        return self._deadlines.within(seconds)

    async def close(self) -> None:
        """Close all connections."""
        self._deadlines.close()
        await self._connector.close()


class PendingRequest:
    """A prepared request; sent when entered."""

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
            # The server may have closed a pooled connection: retry repeatable methods once.
            if self._method not in _REPEATABLE_METHODS:
                raise
            connection = await self._connector.connection(self._route)
            self._response = await transfer(connection, self._method, self._head, self._body)
        return self._response

    async def __aexit__(self, *exc: Any) -> None:
        self._response.close()


class _Resolver(AbstractResolver):
    """Resolves names through the guard, so that only addresses it has checked are connected to."""

    def __init__(self, guard: AddressGuard) -> None:
        self._guard = guard

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        found = await self._guard.addresses(host, port)
        allowed = _allowed_addresses.get()
        if allowed is not None:
            allowed.extend(found)
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
        """Do nothing: the resolver holds no resources."""


class _Connector(aiohttp.TCPConnector):
    """Checks the peer address of new and pooled connections before anything is sent."""

    def __init__(self, guard: AddressGuard, **options: Any) -> None:
        super().__init__(**options)
        self._guard = guard

    async def connection(self, route: Route) -> Connection:
        """Return a checked connection for one request."""
        allowed: list[Address] = []
        token = _allowed_addresses.set(allowed)
        try:
            connection = await self.connect(route.request, [], _TIMEOUTS)
        except TimeoutError as error:
            raise aiohttp.ConnectionTimeoutError(f"connecting to {route.host} timed out") from error
        finally:
            _allowed_addresses.reset(token)
        transport = connection.transport
        peer = transport.get_extra_info("peername") if transport is not None else None
        if peer is None or not self._expected(route, peer[0], allowed):
            connection.close()
            reason = "the connection is to an address that was not allowed"
            raise blocked(str(route.request.url), reason)
        return connection

    def _expected(self, route: Route, peer: str, allowed: list[Address]) -> bool:
        if peer in route.peers and not allowed:
            return True
        address = ip_address(peer)
        if (allowed and address not in allowed) or not self._guard.permits(route.host, address):
            return False
        if len(route.peers) >= MAX_PEERS:
            route.peers.clear()
        route.peers.add(peer)
        return True


class HostLimit:
    """Limits the concurrent calls to one host."""

    def __init__(self, limiter: HostLimiter, host: str) -> None:
        self._limiter = limiter
        self._host = host
        self._free = asyncio.Semaphore(limiter.max_calls)
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
            self._limiter.forget(self._host)


class HostLimiter:
    """The limits of all hosts with calls in progress."""

    def __init__(self, max_calls: int) -> None:
        self.max_calls = max_calls
        self._limits: dict[str, HostLimit] = {}

    def limit(self, host: str) -> HostLimit:
        """Return the limit of a host."""
        found = self._limits.get(host)
        if found is None:
            found = self._limits[host] = HostLimit(self, host)
        return found

    def forget(self, host: str) -> None:
        """Remove the limit of a host without calls."""
        self._limits.pop(host, None)
