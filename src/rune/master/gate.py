"""The gate: every route but the three of health passes it, whatever the protocol. What it lets in has a name."""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable
from typing import Protocol
from urllib.parse import urlsplit

from starlette.requests import HTTPConnection
from starlette.types import Message, Scope, Send

from rune.core.rights import BOOTSTRAP, HERE, Principal, Right
from rune.errors import RuneError
from rune.master.access.known import KnownKeys
from rune.master.access.scoping import check_scope
from rune.master.problems import ApiError
from rune.ports.keys import read_key
from rune.runtime.actor import act_as

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
ANYBODY = {"hook": Principal("hook", "viewer"), "page": Principal("page", "viewer")}
"""Whoever calls a hook, known by the path and by what the hook itself asks for; and whoever loads the page, which holds
nothing but the way to ask for a key."""

Still = Callable[[], Awaitable[bool]]


class Undeclared(RuneError):
    """A route that does not say what one needs in order to use it, or does not pass the gate."""

    code = "UNDECLARED_ROUTE"


class Gate(Protocol):
    """Decides who somebody is."""

    async def admit(self, connection: HTTPConnection) -> Principal:
        """Who asks, or a refusal."""

    async def holds(self, principal: Principal) -> bool:
        """Whether somebody who was let in may stay."""


async def authorize(connection: HTTPConnection) -> None:
    """The dependency of every router. A route that does not say what it needs lets nobody in."""
    need: Right | None = getattr(connection.scope.get("endpoint"), "need", None)
    if need is None:
        raise ApiError("nobody may do this", code="FORBIDDEN")
    if need in ANYBODY:
        _enter(connection, ANYBODY[need])
        return
    gate: Gate = connection.app.state.gate
    principal = await gate.admit(connection)
    if not principal.may(need):
        raise lacking(principal, need)
    await check_scope(connection, principal)
    _enter(connection, principal)
    if principal.name.startswith("key:"):
        connection.scope["still"] = lambda: gate.holds(principal)


def _enter(connection: HTTPConnection, principal: Principal) -> None:
    connection.scope["principal"] = principal
    act_as(principal.name)


def lacking(principal: Principal, need: Right) -> ApiError:
    """Why somebody who is known may not do something."""
    return ApiError(
        f"a key of the role `{principal.role}` may not do this: it takes `{need}`", code="FORBIDDEN"
    )


def guarded(scope: Scope, send: Send) -> Send:
    """For what is told over a long time: nothing more once the key it was asked with has been revoked or is over."""
    still: Still | None = scope.get("still")
    if still is None:
        return send

    async def sending(message: Message) -> None:
        await stay(still)
        await send(message)

    return sending


async def stay(still: Still | None) -> None:
    """Leave as somebody is left who takes nothing: without another word."""
    if still is not None and not await still():
        raise TimeoutError


class LoopbackGate:
    """No login: whoever reaches this machine's loopback may do everything. Pages of other sites may not, by whatever
    name they reach it."""

    async def admit(self, connection: HTTPConnection) -> Principal:
        if _name(connection.headers.get("host", "")) not in LOOPBACK:
            raise ApiError("ask for localhost: no other name is answered without a key", code="FORBIDDEN")
        check_origin(connection)
        return HERE

    async def holds(self, principal: Principal) -> bool:
        return True


class KeyGate:
    """Keys: the one that is configured, and those that were made. With neither, and only on this machine's loopback,
    there is no login."""

    def __init__(self, bootstrap: str, keys: KnownKeys, *, loopback: bool = False) -> None:
        self._bootstrap = bootstrap.encode()
        self._keys = keys
        self._here = LoopbackGate() if loopback else None

    async def admit(self, connection: HTTPConnection) -> Principal:
        check_origin(connection)
        if self._here is not None and not await self._asks():
            return await self._here.admit(connection)
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
