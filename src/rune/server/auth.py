"""Authentication and authorization of requests: API keys, browser sessions, and the delay of responses to wrong keys.

Every route except the health checks depends on a `Permission`, for HTTP and WebSockets alike. A key may be limited to
some workflows; everything of other workflows is then reported as not found.

For a session an API key is exchanged for a cookie that no script can read. The cookie has a random token, of which the
store has the digest alone. A session ends by itself after twelve hours, when it is ended, and when the key it was
created with is revoked or expires.

The response to a wrong key is delayed, so that an address can try a few keys a second at most. If many of an address
are delayed at the moment, another wrong one is rejected at once. A valid key is accepted without delay: behind a proxy
all clients may have one address, and one of them must not lock out the others.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ipaddress
import logging
import math
import re
import secrets
import time
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

import msgspec
from fastapi import Security
from fastapi.openapi.models import HTTPBearer
from fastapi.security.base import SecurityBase
from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.types import Message, Scope, Send

from rune.codec.decode import MalformedDataError, decode
from rune.core.json_decoder import JsonDecoder
from rune.core.permissions import BOOTSTRAP, LOCAL_PRINCIPAL, Principal, Right
from rune.errors import RuneError
from rune.ports.access import ApiKey, ApiKeyStore, NewApiKey, Session, SessionStore, digest_of, read_key
from rune.ports.clock import Clock
from rune.ports.journal import ExecutionRecord, StoreUnavailableError
from rune.ports.workflows import LATEST, workflow_not_found
from rune.runtime.backend import Backend
from rune.runtime.execution_data import ExecutionNotFoundError
from rune.runtime.plan_cache import DefinitionNotFoundError
from rune.runtime.services.audit_log import set_origin
from rune.runtime.services.principal import set_principal
from rune.server.responses import ApiError, TooManyLoginsError, client_address, request_id

if TYPE_CHECKING:
    from rune.server.context import ServerContext


SESSION_COOKIE = "rune_session"
SECURE_COOKIE = f"__Host-{SESSION_COOKIE}"
"""The cookie over TLS. With this prefix a browser accepts it neither from another host nor over plain HTTP."""
SESSION_S = 12 * 3600
MAX_CACHED_SESSIONS = 10_000

log = logging.getLogger("rune.server")

MAX_FAILED_LOGINS = 10  # wrong keys of one address within WINDOW_S before responses are delayed
WINDOW_S = 60.0
MAX_DELAY_S = 10.0
MAX_DELAY_EXPONENT = 4  # of 2, beyond MAX_DELAY_S; a float holds no power of 2 above 1,023
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
        SECURE_COOKIE if over_tls(connection) else SESSION_COOKIE,
        token,
        max_age=SESSION_S if token else 0,
        path="/",
        secure=over_tls(connection),
        httponly=True,
        samesite="strict",
    )


def session_token(connection: HTTPConnection) -> str:
    """Return the token in the cookie of a session; empty: none. Over TLS only the cookie with the prefix counts. Other
    cookies, which may be many, are not decoded."""
    tokens: dict[str, str] = {}
    for header in connection.headers.getlist("cookie"):
        for each in header.split(";"):
            name, _, value = each.partition("=")
            if name.strip() in {SECURE_COOKIE, SESSION_COOKIE}:
                tokens.setdefault(name.strip(), value.strip())
    plain = "" if over_tls(connection) else tokens.get(SESSION_COOKIE, "")
    return tokens.get(SECURE_COOKIE) or plain


def over_tls(connection: HTTPConnection) -> bool:
    """Return whether the browser uses TLS, which a proxy may have ended: a trusted one names the scheme, behind any
    other the origin of a page does. A request that claims it falsely only gets a cookie that its browser will not send
    back."""
    over_https = connection.headers.get("origin", "").lower().startswith("https://")
    return over_https or connection.url.scheme in {"https", "wss"}


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
        if self._delayed[address] >= MAX_DELAYED_PER_ADDRESS:
            raise TooManyLoginsError(
                "this address sends too many wrong API keys at once", math.ceil(MAX_DELAY_S)
            )
        if self._delayed.total() >= MAX_DELAYED:
            raise TooManyLoginsError(
                "too many wrong API keys are sent to this server", math.ceil(MAX_DELAY_S)
            )
        self._delayed[address] += 1
        try:
            await self._sleep(_delay(count - self._limit))
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


def _delay(excess: int) -> float:
    """Return the delay of a response in seconds; it doubles with each wrong key beyond the limit."""
    return min(MAX_DELAY_S, 2.0 ** min(excess - 1, MAX_DELAY_EXPONENT))


def _network(host: str) -> str:
    """Return what counts as one address: a client usually has a whole /64 network of IPv6 addresses."""
    if ":" not in host:
        return host
    try:
        return str(ipaddress.IPv6Network((host.partition("%")[0], 64), strict=False))
    except ValueError:
        return host


CACHE_S = 0.5  # in a cluster, a revoked key may be accepted for this long
USED_AT_PRECISION_MS = 60_000
MAX_CACHED_KEYS = 10_000
SAFE = frozenset({"GET", "HEAD"})
LOOPBACK = re.compile(r"(localhost|127\.0\.0\.1|\[::1\])(:[0-9]{1,5})?", re.IGNORECASE | re.ASCII)
"""`Host` of a request to this machine. It is matched whole: a parser of URLs would read `evil@localhost` as well."""
_NO_KEY = ApiKey(id="", name="", role="viewer", digest=digest_of(""), created_at=0, created_by="")
PUBLIC_PRINCIPALS = {"hook": Principal("hook", "viewer"), "page": Principal("page", "viewer")}
"""The principals of routes without an API key: a webhook verifies its own secret, the page contains no data."""
StillValid = Callable[[], Awaitable[bool]]


class KeyCache:
    """API keys by id, cached for `cache_s` seconds; 0 reads the store each time."""

    def __init__(self, keys: ApiKeyStore, clock: Clock, *, cache_s: float = 0.0) -> None:
        self._keys = keys
        self._clock = clock
        self._cache_s = cache_s
        self._cached: dict[str, tuple[float, ApiKey | None]] = {}
        self._exist = False
        self._checked_at = -1.0
        self._used_at: dict[str, int] = {}

    async def verify(self, sent: NewApiKey) -> ApiKey | None:
        """Return the stored key if the secret matches and the key is valid. An unknown id takes as long as a wrong
        secret, so that the time reveals nothing."""
        key = await self._find(sent.id)
        matches = (key or _NO_KEY).has_secret(sent.secret)
        now = self._clock.now()
        if key is None or not matches or not key.is_valid(now):
            return None
        await self._mark_used(key, now)
        return key

    async def valid(self, id: str) -> ApiKey | None:
        """Return the key with this id if it is neither revoked nor expired."""
        key = await self._find(id)
        return key if key is not None and key.is_valid(self._clock.now()) else None

    async def exist(self) -> bool:
        """Whether a key was ever created. Keys are never deleted, so a positive result is final."""
        if not self._exist and time.monotonic() - self._checked_at >= self._cache_s:
            self._exist = await self._keys.exist()
            self._checked_at = time.monotonic()
        return self._exist

    async def _find(self, id: str) -> ApiKey | None:
        if not self._cache_s:
            return await self._keys.find(id)
        at, key = self._cached.get(id, (-1.0, None))
        now = time.monotonic()
        if at < 0 or now - at >= self._cache_s:
            key = await self._keys.find(id)
            if len(self._cached) >= MAX_CACHED_KEYS:
                self._cached.clear()
            self._cached[id] = (now, key)
        return key

    async def _mark_used(self, key: ApiKey, now: int) -> None:
        last = self._used_at.get(key.id, key.used_at or 0)
        if now - last < USED_AT_PRECISION_MS:
            return
        self._used_at[key.id] = now
        # A request must not fail because the time of use cannot be stored.
        with suppress(StoreUnavailableError):
            await self._keys.mark_used(key.id, now)


def cached_keys(backend: Backend) -> KeyCache:
    """Return the keys of a backend. A store owned by this process is as fast as a cache, so it is read each time."""
    return KeyCache(backend.keys, backend.clock, cache_s=CACHE_S if backend.processes is not None else 0.0)


def cached_sessions(backend: Backend) -> Sessions:
    """Return the sessions of a backend."""
    return Sessions(
        backend.sessions, backend.clock, cache_s=CACHE_S if backend.processes is not None else 0.0
    )


class DeadLetterNotFoundError(RuneError):
    """No dead letter has this id."""

    code = "UNKNOWN_DEAD_LETTER"


class _Named(msgspec.Struct):
    id: str = ""


_NAMED = JsonDecoder(_Named)


async def check_scope(connection: HTTPConnection, principal: Principal) -> None:
    """Raise for a path outside of the workflows of a key, with the same error as for an id that does not exist."""
    if not principal.scopes:
        return
    server: ServerContext = connection.app.state.server
    for name, value in connection.path_params.items():
        if name == "workflow" and not principal.sees(value):
            raise workflow_not_found(value, (), LATEST)
        if name in {"execution", "other", "letter"}:
            await _check_execution(server, principal, value, _not_found(connection, name, value))
        if name == "hash":
            await _check_definition(server, principal, value)


def _not_found(connection: HTTPConnection, name: str, id: str) -> RuneError:
    if name == "letter" and connection.scope.get("method") == "DELETE":
        return dead_letter_not_found(id)
    return ExecutionNotFoundError(f"no execution has the id {id}")


def dead_letter_not_found(id: str) -> DeadLetterNotFoundError:
    return DeadLetterNotFoundError(f"`{id}` is not a dead letter")


async def _check_execution(
    server: ServerContext, principal: Principal, id: str, not_found: RuneError
) -> None:
    accepted: ExecutionRecord | None = await server.engine.backend.journal.accepted(id)
    if accepted is not None and not principal.sees(accepted.workflow):
        raise not_found


async def _check_definition(server: ServerContext, principal: Principal, hash: str) -> None:
    data = await server.reader.definition(hash)
    if data is not None and not principal.sees(_NAMED.decode(data).id):
        raise DefinitionNotFoundError(f"no definition has the hash {hash}")


def check_sees(principal: Principal, workflow: str) -> None:
    """Raise if a key may not store or run a definition with this workflow id."""
    if not principal.sees(workflow):
        raise ApiError(f"this key does not permit the workflow `{workflow[:128]}`", code="FORBIDDEN")


def check_definition(principal: Principal, document: bytes) -> None:
    """Apply `check_sees` to a definition that is not parsed yet. An unreadable one has no id."""
    if not principal.scopes:
        return
    try:
        named = decode(_NAMED, document)
    except MalformedDataError:
        named = _Named()
    check_sees(principal, named.id)


class UndeclaredPermissionError(RuneError):
    """A route declares no permission, or skips authentication."""

    code = "UNDECLARED_ROUTE"


class Authenticator(Protocol):
    """Determines the principal of a request."""

    async def authenticate(self, connection: HTTPConnection) -> Principal:
        """Return the principal of a request, or raise."""

    async def holds(self, principal: Principal, session: Session | None = None) -> bool:
        """Whether a principal, and the session it was authenticated by, is still valid; checked during long
        responses."""


class Permission(SecurityBase):
    """A dependency that authenticates a request, checks that the principal has a right, and returns the principal."""

    model = HTTPBearer()
    scheme_name = "key"

    def __init__(self, right: Right) -> None:
        self.right = right

    async def __call__(self, connection: HTTPConnection) -> Principal:
        if connection.scope.get("permission") is not self:
            await self._check(connection)
            connection.scope["permission"] = self
        principal: Principal = connection.scope["principal"]
        return principal

    async def _check(self, connection: HTTPConnection) -> None:
        set_origin(client_address(connection), request_id(connection.scope))
        if self.right in PUBLIC_PRINCIPALS:
            _set_principal(connection, PUBLIC_PRINCIPALS[self.right])
            return
        gate: Authenticator = connection.app.state.gate
        principal = await gate.authenticate(connection)
        _set_principal(connection, principal)
        check_right(principal, self.right)
        await check_scope(connection, principal)
        session: Session | None = connection.scope.get("session")
        if principal.name.startswith("key:") or session is not None:
            connection.scope["still"] = lambda: gate.holds(principal, session)


def requires(right: Right) -> Any:
    """Declare the permission of a route, as one of its dependencies."""
    return Security(Permission(right))


def _set_principal(connection: HTTPConnection, principal: Principal) -> None:
    connection.scope["principal"] = principal
    set_principal(principal)


def check_right(principal: Principal, right: Right) -> None:
    """Raise if a principal lacks a right."""
    if not principal.may(right):
        raise ApiError(f"the role `{principal.role}` lacks the permission `{right}`", code="FORBIDDEN")


def authorize_route(scope: Scope, send: Send) -> Send:
    """Wrap `send` of a long response, so that nothing is sent once its key has been revoked or has expired."""
    still: StillValid | None = scope.get("still")
    if still is None:
        return send

    async def send_authorized(message: Message) -> None:
        await hold_authorized(still)
        await send(message)

    return send_authorized


async def hold_authorized(still: StillValid | None) -> None:
    """Raise TimeoutError if the key is no longer valid; the stream is then cut off as for a stalled client."""
    if still is not None and not await still():
        raise TimeoutError


class LoopbackAuth:
    """Grants everything to requests over the loopback. The host and origin checks reject pages of other sites, also
    after DNS rebinding."""

    async def authenticate(self, connection: HTTPConnection) -> Principal:
        hosts = connection.headers.getlist("host")
        if len(hosts) != 1 or LOOPBACK.fullmatch(hosts[0]) is None:
            raise ApiError("use localhost; other host names require an API key", code="FORBIDDEN")
        check_origin(connection)
        return LOCAL_PRINCIPAL

    async def holds(self, principal: Principal, session: Session | None = None) -> bool:
        return True


class ApiKeyAuth:
    """Accepts the configured bootstrap key, the created API keys, and the sessions that were created with one of them.
    While there are no keys, a server on the loopback requires none."""

    def __init__(
        self,
        bootstrap: str,
        keys: KeyCache,
        sessions: Sessions | None = None,
        *,
        loopback: bool = False,
        failed_logins: FailedLogins | None = None,
    ) -> None:
        self._bootstrap = bootstrap.encode()
        self._failed_logins = failed_logins or FailedLogins()
        self._keys = keys
        self.sessions = sessions
        self._loopback = LoopbackAuth() if loopback else None

    async def authenticate(self, connection: HTTPConnection) -> Principal:
        check_origin(connection)
        if self._loopback is not None and not await self._requires_key():
            return await self._loopback.authenticate(connection)
        sent_by = connection.headers.getlist("authorization")
        if len(sent_by) > 1:
            raise ApiError("the request has more than one `Authorization`", code="BAD_REQUEST")
        scheme, _, rest = "".join(sent_by).partition(" ")
        text = rest.strip()
        if scheme.lower() == "bearer" and text:
            if self._bootstrap and hmac.compare_digest(text.encode(), self._bootstrap):
                return Principal(BOOTSTRAP, "admin")
            sent = read_key(text)
            found = None if sent is None else await self._keys.verify(sent)
            if found is not None:
                return found.principal
            await self._failed_logins.record(client_address(connection))
        elif (token := session_token(connection)) and (
            by_session := await self._by_session(connection, token)
        ):
            return by_session
        raise ApiError("send a valid API key: `Authorization: Bearer …`", code="UNAUTHORIZED")

    async def _requires_key(self) -> bool:
        return bool(self._bootstrap) or await self._keys.exist()

    async def _by_session(self, connection: HTTPConnection, token: str) -> Principal | None:
        session = None if self.sessions is None else await self.sessions.find(token)
        principal = None if session is None else await self._principal_of(session)
        if principal is not None:
            # A browser adds the cookie by itself, and names the page that sent the request.
            if connection.scope.get("method", "GET") not in SAFE and "origin" not in connection.headers:
                raise ApiError("a change in a session requires the header `Origin`", code="FORBIDDEN")
            connection.scope["session"] = session
        return principal

    async def _principal_of(self, session: Session) -> Principal | None:
        """Return the principal of a session while the key that created it is valid."""
        if session.principal == BOOTSTRAP:
            known = bool(self._bootstrap) and hmac.compare_digest(session.proof, self.bootstrap_digest)
            return Principal(BOOTSTRAP, "admin") if known else None
        key = await self._keys.valid(session.principal.removeprefix("key:"))
        return key.principal if key is not None and hmac.compare_digest(key.digest, session.proof) else None

    @property
    def bootstrap_digest(self) -> bytes:
        return hashlib.sha256(self._bootstrap).digest()

    async def proof_of(self, principal: Principal) -> bytes | None:
        """Return the digest of the key of a principal; None if it has none."""
        if principal.name == BOOTSTRAP:
            return self.bootstrap_digest
        key = await self._keys.valid(principal.name.removeprefix("key:"))
        return None if key is None else key.digest

    async def holds(self, principal: Principal, session: Session | None = None) -> bool:
        if session is None:
            return await self._keys.valid(principal.name.removeprefix("key:")) is not None
        alive = self.sessions is not None and await self.sessions.holds(session)
        return alive and await self._principal_of(session) is not None


def check_origin(connection: HTTPConnection) -> None:
    """Reject requests from pages of another origin."""
    origin = connection.headers.get("origin")
    if origin is None:
        return
    try:
        same = urlsplit(origin).netloc.lower() == connection.headers.get("host", "").lower()
    except ValueError:
        same = False
    if not same:
        raise ApiError("cross-origin requests are not allowed", code="FORBIDDEN")
