"""The HTTP client: one pool of connections for a process, every connection checked by the guard."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Mapping
from contextvars import ContextVar
from ipaddress import ip_address
from typing import Any

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.connector import Connection
from yarl import URL

from rune.nodes.io.address import Target, blocked
from rune.nodes.io.deadlines import Deadlines, Within
from rune.nodes.io.guard import Guard
from rune.nodes.io.networks import Address
from rune.nodes.io.transfer import Response, head, transfer

CONNECT_SECONDS = 5.0
IDLE_SECONDS = 15.0
MOST_ROUTES = 1024
MOST_PEERS = 64

_PATIENCE = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS)
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

    def __init__(self, guard: Guard, per_host: int) -> None:
        self._guard = guard
        self._lanes = Lanes(per_host)
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
    ) -> Sending:
        """One request; entered, it is the answer, whose body is as it came."""
        key = (where.scheme, where.host, where.port, verify)
        route = self._routes.get(key)
        if route is None:
            self._guard.check_target(where)
            if len(self._routes) >= MOST_ROUTES:
                self._routes.clear()
            route = self._routes[key] = Route(where, verify)
        return Sending(self._connector, route, method, head(method, where, headers, body), body)

    def lane(self, where: Target) -> Lane:
        """A place among the calls to a host; there are only so many at once."""
        return self._lanes.lane(where.host)

    def within(self, seconds: float) -> Within:
        """So long may a block take."""
        return self._deadlines.within(seconds)

    async def close(self) -> None:
        """Close every connection."""
        self._deadlines.close()
        await self._connector.close()


class Sending:
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

    def __init__(self, guard: Guard) -> None:
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

    def __init__(self, guard: Guard, **options: Any) -> None:
        super().__init__(**options)
        self._guard = guard

    async def connection(self, route: Route) -> Connection:
        """A connection for one request."""
        passed: list[Address] = []
        token = _passed.set(passed)
        try:
            connection = await self.connect(route.request, [], _PATIENCE)
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
        if len(route.peers) >= MOST_PEERS:
            route.peers.clear()
        route.peers.add(peer)
        return True


class Lane:
    """One host's share of the calls under way."""

    def __init__(self, lanes: Lanes, host: str) -> None:
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


class Lanes:
    """How many calls to one host may be under way; hosts that nobody calls are forgotten."""

    def __init__(self, width: int) -> None:
        self.width = width
        self._lanes: dict[str, Lane] = {}

    def lane(self, host: str) -> Lane:
        """The lane of a host."""
        found = self._lanes.get(host)
        if found is None:
            found = self._lanes[host] = Lane(self, host)
        return found

    def forget(self, host: str) -> None:
        """Nobody is in this lane any more."""
        self._lanes.pop(host, None)
