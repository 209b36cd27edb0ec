"""The HTTP client: one pool of connections for a process, every connection checked by the guard."""

from __future__ import annotations

import asyncio
import io
import socket
import ssl
from collections.abc import Mapping
from contextvars import ContextVar
from functools import lru_cache
from ipaddress import ip_address
from typing import Any

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from rune.nodes.io.address import Target, blocked
from rune.nodes.io.guard import Guard
from rune.nodes.io.networks import Address

CONNECT_SECONDS = 5.0
IDLE_SECONDS = 15.0
LARGE = 256 * 1024

_passed: ContextVar[list[Address] | None] = ContextVar("passed", default=None)
"""The addresses that the guard let through for the request of this task."""


class Client:
    """Sends single requests; redirects, decoding and limits are its caller's."""

    def __init__(self, guard: Guard, per_host: int) -> None:
        self._guard = guard
        self._lanes = Lanes(per_host)
        connector = _Connector(
            guard,
            resolver=_Resolver(guard),
            use_dns_cache=False,
            limit=0,
            keepalive_timeout=IDLE_SECONDS,
            ssl=ssl.create_default_context(),
        )
        self._session = aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS),
            auto_decompress=False,
            trust_env=False,
            skip_auto_headers=("User-Agent", "Content-Type"),
        )

    def send(
        self, method: str, where: Target, headers: Mapping[str, str], body: bytes | None, *, verify: bool
    ) -> Sending:
        """One request; entered, it is the answer, whose body is as it came."""
        self._guard.check_target(where)
        url = URL(where.url, encoded=True)
        if url.host != where.host or url.port != where.port or url.user is not None:
            raise blocked(where.url, "its host can be read in two ways")
        options: dict[str, Any] = {} if verify else {"ssl": False}
        return Sending(
            self._session.request(
                method, url, headers=headers, data=_payload(body), allow_redirects=False, **options
            )
        )

    def lane(self, where: Target) -> Lane:
        """A place among the calls to a host; there are only so many at once."""
        return self._lanes.lane(where.host)

    async def close(self) -> None:
        """Close every connection."""
        await self._session.close()


class Sending:
    """A request under way, and the addresses that were let through for it."""

    __slots__ = ("_request", "_token")

    def __init__(self, request: Any) -> None:
        self._request = request

    async def __aenter__(self) -> aiohttp.ClientResponse:
        self._token = _passed.set([])
        try:
            response: aiohttp.ClientResponse = await self._request.__aenter__()
        except BaseException:
            _passed.reset(self._token)
            raise
        return response

    async def __aexit__(self, *exc: Any) -> None:
        try:
            await self._request.__aexit__(*exc)
        finally:
            _passed.reset(self._token)


def _payload(body: bytes | None) -> bytes | io.BytesIO | None:
    """What is large is written piece by piece, so that it does not hold up the others."""
    return io.BytesIO(body) if body is not None and len(body) > LARGE else body


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

    async def connect(self, req: Any, traces: Any, timeout: Any) -> Any:  # noqa: ASYNC109 - its name there
        connection = await super().connect(req, traces, timeout)
        transport = connection.transport
        peer = transport.get_extra_info("peername") if transport is not None else None
        host = req.url.host or ""
        if peer is None or not self._expected(host, _address(peer[0])):
            connection.close()
            raise blocked(str(req.url), "the connection leads to another address than was allowed")
        return connection

    def _expected(self, host: str, peer: Address) -> bool:
        passed = _passed.get()
        return (not passed or peer in passed) and self._guard.permits(host, peer)


@lru_cache(maxsize=1024)
def _address(text: str) -> Address:
    return ip_address(text)


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
