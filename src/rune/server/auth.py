"""Keys as one process knows them: looked up when they are sent, and believed for a moment at most.

Scoping: what lies outside of the workflows of a key is not there for whoever asks with it.

The gate: every route but the three of health passes it, whatever the protocol. What it lets in has a name.
"""

from __future__ import annotations

import hmac
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit

import msgspec
from starlette.requests import HTTPConnection
from starlette.types import Message, Scope, Send

from rune.core.permissions import BOOTSTRAP, LOCAL_PRINCIPAL, Principal, Right
from rune.errors import RuneError
from rune.ports.access import ApiKey, ApiKeyStore, NewApiKey, digest_of, read_key
from rune.ports.clock import Clock
from rune.ports.journal import ExecutionRecord, StoreUnavailableError
from rune.ports.workflows import LATEST, workflow_not_found
from rune.runtime.backend import Backend
from rune.runtime.plan_cache import DefinitionNotFoundError
from rune.runtime.services.audit_log import set_principal
from rune.runtime.values import ExecutionNotFoundError
from rune.server.responses import ApiError

if TYPE_CHECKING:
    from rune.server.context import ServerContext

CACHE_S = 0.5
"""How long a key of a cluster is believed, in seconds: that long a revoked one may still open."""

COARSE = 60_000
"""How often it is noted that a key is used, in ms."""

MAX_CACHED_KEYS = 10_000
_NO_KEY = ApiKey(id="", name="", role="viewer", digest=digest_of(""), created_at=0, created_by="")


class KeyCache:
    """Keys by id. `remembered`: 0 asks the store each time."""

    def __init__(self, keys: ApiKeyStore, clock: Clock, *, remembered: float = 0.0) -> None:
        self._keys = keys
        self._clock = clock
        self._remembered = remembered
        self._found: dict[str, tuple[float, ApiKey | None]] = {}
        self._exist = False
        self._looked = -1.0
        self._noted: dict[str, int] = {}

    async def opened_by(self, made: NewApiKey) -> ApiKey | None:
        """The key that this is, if it opens anything now. One that is not there takes as long as a wrong one."""
        key = await self._find(made.id)
        right = (key or _NO_KEY).opened_by(made.secret)
        now = self._clock.now()
        if key is None or not right or not key.holds(now):
            return None
        await self._note(key, now)
        return key

    async def holds(self, id: str) -> bool:
        """Whether a key still opens anything."""
        key = await self._find(id)
        return key is not None and key.holds(self._clock.now())

    async def exist(self) -> bool:
        """Whether a key was ever made: they are not removed, so once is for ever."""
        if not self._exist and time.monotonic() - self._looked >= self._remembered:
            self._exist = await self._keys.exist()
            self._looked = time.monotonic()
        return self._exist

    async def _find(self, id: str) -> ApiKey | None:
        if not self._remembered:
            return await self._keys.find(id)
        at, key = self._found.get(id, (-1.0, None))
        now = time.monotonic()
        if at < 0 or now - at >= self._remembered:
            key = await self._keys.find(id)
            if len(self._found) >= MAX_CACHED_KEYS:
                self._found.clear()
            self._found[id] = (now, key)
        return key

    async def _note(self, key: ApiKey, now: int) -> None:
        last = self._noted.get(key.id, key.used_at or 0)
        if now - last < COARSE:
            return
        self._noted[key.id] = now
        with suppress(StoreUnavailableError):  # nobody is turned away because this cannot be written
            await self._keys.mark_used(key.id, now)


def cached_keys(backend: Backend) -> KeyCache:
    """The keys of a backend. Where one process owns the store, looking is as quick as remembering."""
    return KeyCache(backend.keys, backend.clock, remembered=CACHE_S if backend.fleet is not None else 0.0)


class DeadLetterNotFoundError(RuneError):
    """No dead letter has this id."""

    code = "UNKNOWN_DEAD_LETTER"


class _Named(msgspec.Struct):
    id: str = ""


async def check_scope(connection: HTTPConnection, principal: Principal) -> None:
    """Refuse a path that leads outside, in the words of what is not there at all."""
    if not principal.scopes:
        return
    master: ServerContext = connection.app.state.master
    for name, value in connection.path_params.items():
        if name == "workflow" and not principal.sees(value):
            raise workflow_not_found(value, (), LATEST)
        if name in {"execution", "other", "letter"}:
            await _check_execution(master, principal, value, _absent(connection, name, value))
        if name == "hash":
            await _check_definition(master, principal, value)


def _absent(connection: HTTPConnection, name: str, id: str) -> RuneError:
    if name == "letter" and connection.scope.get("method") == "DELETE":
        return dead_letter_not_found(id)
    return ExecutionNotFoundError(f"no execution has the id {id}")


def dead_letter_not_found(id: str) -> DeadLetterNotFoundError:
    """Why a dead letter cannot be settled."""
    return DeadLetterNotFoundError(f"`{id}` is no dead letter")


async def _check_execution(master: ServerContext, principal: Principal, id: str, absent: RuneError) -> None:
    accepted: ExecutionRecord | None = await master.engine.backend.journal.accepted(id)
    if accepted is not None and not principal.sees(accepted.workflow):
        raise absent


async def _check_definition(master: ServerContext, principal: Principal, hash: str) -> None:
    data = await master.reader.definition(hash)
    if data is not None and not principal.sees(msgspec.json.decode(data, type=_Named).id):
        raise DefinitionNotFoundError(f"no definition has the hash {hash}")


def check_sees(principal: Principal, workflow: str) -> None:
    """Refuse to store or run, under a name outside, what was brought along."""
    if not principal.sees(workflow):
        raise ApiError(f"this key is not for a workflow `{workflow[:128]}`", code="FORBIDDEN")


def check_definition(principal: Principal, document: bytes) -> None:
    """The same for a document that was not read yet. One that cannot be read is nobody's."""
    if not principal.scopes:
        return
    try:
        named = msgspec.json.decode(document, type=_Named)
    except (msgspec.DecodeError, RecursionError):
        named = _Named()
    check_sees(principal, named.id)


LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
PUBLIC_PRINCIPALS = {"hook": Principal("hook", "viewer"), "page": Principal("page", "viewer")}
"""Whoever calls a hook, known by the path and by what the hook itself asks for; and whoever loads the page, which holds
nothing but the way to ask for a key."""

StillValid = Callable[[], Awaitable[bool]]


class UndeclaredPermissionError(RuneError):
    """A route that does not say what one needs in order to use it, or does not pass the gate."""

    code = "UNDECLARED_ROUTE"


class Authenticator(Protocol):
    """Decides who somebody is."""

    async def authenticate(self, connection: HTTPConnection) -> Principal:
        """Who asks, or a refusal."""

    async def holds(self, principal: Principal) -> bool:
        """Whether somebody who was let in may stay."""


async def authorize(connection: HTTPConnection) -> None:
    """The dependency of every router. A route that does not say what it needs lets nobody in."""
    need: Right | None = getattr(connection.scope.get("endpoint"), "need", None)
    if need is None:
        raise ApiError("nobody may do this", code="FORBIDDEN")
    if need in PUBLIC_PRINCIPALS:
        _enter(connection, PUBLIC_PRINCIPALS[need])
        return
    gate: Authenticator = connection.app.state.gate
    principal = await gate.authenticate(connection)
    if not principal.may(need):
        raise forbidden_error(principal, need)
    await check_scope(connection, principal)
    _enter(connection, principal)
    if principal.name.startswith("key:"):
        connection.scope["still"] = lambda: gate.holds(principal)


def _enter(connection: HTTPConnection, principal: Principal) -> None:
    connection.scope["principal"] = principal
    set_principal(principal.name)


def forbidden_error(principal: Principal, need: Right) -> ApiError:
    """Why somebody who is known may not do something."""
    return ApiError(
        f"a key of the role `{principal.role}` may not do this: it takes `{need}`", code="FORBIDDEN"
    )


def authorize_route(scope: Scope, send: Send) -> Send:
    """For what is told over a long time: nothing more once the key it was asked with has been revoked or is over."""
    still: StillValid | None = scope.get("still")
    if still is None:
        return send

    async def sending(message: Message) -> None:
        await hold_authorized(still)
        await send(message)

    return sending


async def hold_authorized(still: StillValid | None) -> None:
    """Leave as somebody is left who takes nothing: without another word."""
    if still is not None and not await still():
        raise TimeoutError


class LoopbackAuth:
    """No login: whoever reaches this machine's loopback may do everything. Pages of other sites may not, by whatever
    name they reach it."""

    async def authenticate(self, connection: HTTPConnection) -> Principal:
        if _name(connection.headers.get("host", "")) not in LOOPBACK:
            raise ApiError("ask for localhost: no other name is answered without a key", code="FORBIDDEN")
        check_origin(connection)
        return LOCAL_PRINCIPAL

    async def holds(self, principal: Principal) -> bool:
        return True


class ApiKeyAuth:
    """Keys: the one that is configured, and those that were made. With neither, and only on this machine's loopback,
    there is no login."""

    def __init__(self, bootstrap: str, keys: KeyCache, *, loopback: bool = False) -> None:
        self._bootstrap = bootstrap.encode()
        self._keys = keys
        self._here = LoopbackAuth() if loopback else None

    async def authenticate(self, connection: HTTPConnection) -> Principal:
        check_origin(connection)
        if self._here is not None and not await self._asks():
            return await self._here.authenticate(connection)
        scheme, _, given = connection.headers.get("authorization", "").partition(" ")
        text = given.strip()
        if scheme.lower() == "bearer" and text:
            if self._bootstrap and hmac.compare_digest(text.encode(), self._bootstrap):
                return Principal(BOOTSTRAP, "admin")
            made = read_key(text)
            found = None if made is None else await self._keys.opened_by(made)
            if found is not None:
                return found.principal
        raise ApiError("send a key that holds: `Authorization: Bearer …`", code="UNAUTHORIZED")

    async def _asks(self) -> bool:
        return bool(self._bootstrap) or await self._keys.exist()

    async def holds(self, principal: Principal) -> bool:
        return await self._keys.holds(principal.name.removeprefix("key:"))


def check_origin(connection: HTTPConnection) -> None:
    """Refuse what a page of another site asks for."""
    origin = connection.headers.get("origin")
    if origin is None:
        return
    try:
        same = urlsplit(origin).netloc.lower() == connection.headers.get("host", "").lower()
    except ValueError:
        same = False
    if not same:
        raise ApiError("pages of other sites may not ask here", code="FORBIDDEN")


def _name(host: str) -> str:
    try:
        return (urlsplit(f"//{host}").hostname or "").lower()
    except ValueError:
        return ""
