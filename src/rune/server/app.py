"""The ASGI application: all routes behind authentication, the status page, the OpenAPI document.

The status page consists of four static files without a build step; it loads nothing from other hosts.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from importlib.resources import files
from typing import Any

import msgspec
from fastapi import APIRouter, FastAPI, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

import rune
from rune.server.auth import Authenticator, LoopbackAuth
from rune.server.context import ServerContext
from rune.server.endpoints import PREFIX, Router, add, gated, openapi
from rune.server.monitoring import HEALTH, metrics
from rune.server.permissions import check_declared
from rune.server.responses import HANDLERS, Reply
from rune.server.routes.access import entries, keys, limits
from rune.server.routes.actions import actions
from rune.server.routes.credentials import credentials, granting
from rune.server.routes.dead_letters import dead_letters
from rune.server.routes.executions import comparing, executions, starts
from rune.server.routes.live import add_sockets, live
from rune.server.routes.node_runs import runs
from rune.server.routes.system import health, nodetypes, system
from rune.server.routes.triggers import triggers
from rune.server.routes.webhooks import add_hooks
from rune.server.routes.workflows import aliases, definitions, workflows
from rune.telemetry.tracing import ARRIVING

STATIC_FILES = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/static/rune.js": ("rune.js", "text/javascript; charset=utf-8"),
    "/static/rune.svg": ("rune.svg", "image/svg+xml"),
    "/static/rune.css": ("rune.css", "text/css; charset=utf-8"),
}
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self';"
    " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
STATIC_HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
# Routes are matched in this order, so the most frequent ones come first.
RESOURCES: tuple[Router, ...] = (
    starts,
    executions,
    live,
    actions,
    runs,
    workflows,
    aliases,
    limits,
    comparing,
    definitions,
    dead_letters,
    system,
    nodetypes,
    credentials,
    triggers,
    granting,
    keys,
    entries,
)


class TraceMiddleware:
    """Stores the `traceparent` header of a request for the executions that it starts."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        header = next((value for name, value in scope.get("headers", ()) if name == b"traceparent"), b"")
        token = ARRIVING.set(header.decode("latin-1"))
        try:
            await self._app(scope, receive, send)
        finally:
            ARRIVING.reset(token)


def add_page(router: APIRouter) -> None:
    """Add the status page to a router."""
    for path, (name, kind) in STATIC_FILES.items():
        router.add_api_route(path, _file(name, kind), methods=["GET"], include_in_schema=False)


def _file(name: str, kind: str) -> Callable[[Request], Awaitable[Response]]:
    data = (files("rune.server") / "static" / name).read_bytes()

    async def endpoint(request: Request) -> Response:
        return Response(data, headers=STATIC_HEADERS, media_type=kind)

    endpoint.permission = "page"  # type: ignore[attr-defined]
    return endpoint


def make_app(server: ServerContext, gate: Authenticator | None = None) -> FastAPI:
    """Build the application. By default it serves only requests to the loopback, without authentication."""
    app = FastAPI(
        title="Rune",
        version=rune.__version__,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        exception_handlers=HANDLERS,
    )
    app.state.server = app.state.process = server
    app.state.gate = gate or LoopbackAuth()
    router = gated()
    for resource in RESOURCES:
        for operation in resource.operations:
            add(router, operation)
    add_sockets(router)
    add_hooks(router)
    _add_document(router)
    add_page(router)
    router.add_api_route("/metrics", metrics, methods=["GET"], include_in_schema=False)
    if server.engine.instrumentation.tracer is not None:
        app.add_middleware(TraceMiddleware)
    app.router.redirect_slashes = False
    app.router.routes.extend((*health().routes, *router.routes))
    check_declared(app.router.routes, HEALTH.values())
    return app


def document() -> dict[str, Any]:
    """Return the OpenAPI document."""
    return openapi(RESOURCES)


def _add_document(router: Any) -> None:
    encoded: list[bytes] = []

    async def get_openapi(request: Request) -> Response:
        if not encoded:
            encoded.append(msgspec.json.encode(document()))
        return Reply(encoded[0])

    get_openapi.permission = "view"  # type: ignore[attr-defined]
    router.add_api_route(f"{PREFIX}/openapi.json", get_openapi, methods=["GET"], include_in_schema=False)
