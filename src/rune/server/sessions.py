"""Browser sessions: an API key is exchanged for a cookie that no script can read.

The cookie has a random token, of which the store has the digest alone. A session ends by itself after twelve hours,
when it is ended, and when the key it was created with is revoked or expires.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections import OrderedDict

from starlette.requests import HTTPConnection
from starlette.responses import Response

from rune.ports.access import Session, SessionStore
from rune.ports.clock import Clock

SESSION_COOKIE = "rune_session"
SESSION_S = 12 * 3600
MAX_CACHED_SESSIONS = 10_000


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
