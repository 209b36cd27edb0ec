"""Arriving: the trace that a request belongs to, kept with whatever it starts."""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

from rune.telemetry.context import ARRIVING


class Arriving:
    """Around an application, where somebody traces."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        given = next((value for name, value in scope.get("headers", ()) if name == b"traceparent"), b"")
        token = ARRIVING.set(given.decode("latin-1"))
        try:
            await self._app(scope, receive, send)
        finally:
            ARRIVING.reset(token)
