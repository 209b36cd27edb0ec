"""Logins: browser sessions, and the delay of responses to wrong API keys.

For a session an API key is exchanged for a cookie that no script can read. The cookie has a random token, of which the
store has the digest alone. A session ends by itself after twelve hours, when it is ended, and when the key it was
created with is revoked or expires.

The response to a wrong key is delayed, so that an address can try a few keys a second at most. A valid key is accepted
without delay: behind a proxy all clients have one address, and one of them must not lock out the others. Only an
address with many delayed responses at once is rejected with all of its keys, until these are sent.
"""

from __future__ import annotations

import asyncio
import hashlib
import ipaddress
import logging
import math
import secrets
import time
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable

from starlette.requests import HTTPConnection
from starlette.responses import Response

from rune.ports.access import Session, SessionStore
from rune.ports.clock import Clock
from rune.server.responses import TooManyLoginsError

SESSION_COOKIE = "rune_session"
SESSION_S = 12 * 3600
MAX_CACHED_SESSIONS = 10_000

log = logging.getLogger("rune.server")

MAX_FAILED_LOGINS = 10  # wrong keys of one address within WINDOW_S before responses are delayed
WINDOW_S = 60.0
MAX_DELAY_S = 10.0
MAX_ADDRESSES = 10_000  # of which wrong keys are counted
MAX_DELAYED = 1_000  # responses that are delayed at the same time
MAX_DELAYED_PER_ADDRESS = 32


class Sessions:
    """Sessions by the token in their cookie, cached for `cache_s` seconds; 0 reads the store each time."""

    def __init__(self, store: SessionStore, clock: Clock, *, cache_s: float = 0.0) -> None:
        self._store = store
        self._clock = clock
        self._cache_s = cache_s
        self._cached: OrderedDict[str, tuple[float, Session | None]] = OrderedDict()

    async def create(self, principal: str, proof: bytes) -> tuple[str, Session]:
        """Create a session for a principal and return the token of its cookie."""
        token, now = secrets.token_urlsafe(32), self._clock.now()
        session = Session(
            id=_digest(token),
            principal=principal,
            proof=proof,
            created_at=now,
            expires_at=now + SESSION_S * 1000,
        )
        await self._store.put(session)
        return token, session

    async def find(self, token: str) -> Session | None:
        """Return the session of a token, unless it has ended."""
        session = await self._find(_digest(token))
        return session if session is not None and self._clock.now() < session.expires_at else None

    async def holds(self, session: Session) -> bool:
        """Return whether a session has not ended."""
        return self._clock.now() < session.expires_at and await self._find(session.id) is not None

    async def end(self, session: Session) -> None:
        """End a session. Other processes accept it until their cache expires."""
        await self._store.remove(session.id)
        self._cached.pop(session.id, None)

    async def _find(self, id: str) -> Session | None:
        if not self._cache_s:
            return await self._store.find(id)
        at, session = self._cached.get(id, (-1.0, None))
        now = time.monotonic()
        if at < 0 or now - at >= self._cache_s:
            session = await self._store.find(id)
            self._cached[id] = (now, session)
            if len(self._cached) > MAX_CACHED_SESSIONS:
                self._cached.popitem(last=False)
        return session


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def set_cookie(connection: HTTPConnection, response: Response, token: str) -> None:
    """Add the cookie of a session to a response; an empty token removes it."""
    response.set_cookie(
        SESSION_COOKIE,
        token,
        max_age=SESSION_S if token else 0,
        path="/",
        secure=over_tls(connection),
        httponly=True,
        samesite="strict",
    )


def over_tls(connection: HTTPConnection) -> bool:
    """Return whether the browser uses TLS, which a proxy may have ended. A request that claims it falsely only gets a
    cookie that its browser will not send back."""
    headers = connection.headers
    return (
        connection.url.scheme in {"https", "wss"}
        or headers.get("x-forwarded-proto", "").lower() == "https"
        or headers.get("origin", "").lower().startswith("https://")
    )


class FailedLogins:
    """Counts wrong keys by address and delays the responses to them. A request without a key is not counted. A `limit`
    of 0 delays nothing."""

    def __init__(
        self,
        limit: int = MAX_FAILED_LOGINS,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._limit = limit
        self._clock = clock
        self._sleep = sleep
        self._failed: OrderedDict[str, tuple[int, float]] = OrderedDict()
        self._delayed: Counter[str] = Counter()

    def check(self, host: str) -> None:
        """Raise if too many responses to this address are delayed at the moment."""
        if not self._delayed:
            return
        delayed = self._delayed[_network(host)]
        if delayed >= MAX_DELAYED_PER_ADDRESS or (delayed and self._delayed.total() >= MAX_DELAYED):
            raise TooManyLoginsError(
                "this address sends too many wrong API keys at once", math.ceil(MAX_DELAY_S)
            )

    async def record(self, host: str) -> None:
        """Count a wrong key, and wait before the response if the address has sent too many."""
        if not self._limit:
            return
        address = _network(host)
        count = self._count(address)
        if count < self._limit:
            return
        if count == self._limit:
            log.warning(
                "%s has sent %d wrong API keys within a minute; responses are delayed now", host, count
            )
            return
        if self._delayed.total() >= MAX_DELAYED:
            raise TooManyLoginsError(
                "too many wrong API keys are sent to this server", math.ceil(MAX_DELAY_S)
            )
        self._delayed[address] += 1
        try:
            await self._sleep(min(MAX_DELAY_S, 2.0 ** (count - self._limit - 1)))
        finally:
            self._delayed[address] -= 1
            if not self._delayed[address]:
                del self._delayed[address]

    def _count(self, address: str) -> int:
        now = self._clock()
        count, at = self._failed.pop(address, (0, now))
        count = count + 1 if now - at < WINDOW_S else 1
        self._failed[address] = (count, now)
        if len(self._failed) > MAX_ADDRESSES:
            self._failed.popitem(last=False)
        return count


def _network(host: str) -> str:
    """Return what counts as one address: a client usually has a whole /64 network of IPv6 addresses."""
    if ":" not in host:
        return host
    try:
        return str(ipaddress.IPv6Network((host.partition("%")[0], 64), strict=False))
    except ValueError:
        return host
