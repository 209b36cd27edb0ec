"""The gate: every route but the three of health passes it, whatever the protocol."""

from __future__ import annotations

import hmac
from typing import Literal, Protocol
from urllib.parse import urlsplit

from starlette.requests import HTTPConnection

from rune.master.problems import ApiError

Need = Literal["view", "run", "edit", "admin"]
"""What a route lets one do: look, start and steer executions, change definitions, change credentials."""

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


class Gate(Protocol):
    """Decides who may do what."""

    async def check(self, connection: HTTPConnection, need: Need) -> None:
        """Let pass, or raise."""


async def authorize(connection: HTTPConnection) -> None:
    """The dependency of every router. A route that does not say what it needs lets nobody in."""
    need: Need | None = getattr(connection.scope.get("endpoint"), "need", None)
    if need is None:
        raise ApiError("nobody may do this", code="FORBIDDEN")
    gate: Gate = connection.app.state.gate
    await gate.check(connection, need)


class LoopbackGate:
    """No login: whoever reaches this machine's loopback may do everything. Pages of other sites may not, by whatever
    name they reach it."""

    async def check(self, connection: HTTPConnection, need: Need) -> None:
        headers = connection.headers
        if _name(headers.get("host", "")) not in LOOPBACK:
            raise ApiError("ask for localhost: no other name is answered without a key", code="FORBIDDEN")
        check_origin(connection)


class KeyGate:
    """One key for everybody who may do everything."""

    def __init__(self, key: str) -> None:
        self._key = key.encode()

    async def check(self, connection: HTTPConnection, need: Need) -> None:
        check_origin(connection)
        scheme, _, given = connection.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not hmac.compare_digest(given.strip().encode(), self._key):
            raise ApiError("send the key: `Authorization: Bearer …`", code="UNAUTHORIZED")


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
