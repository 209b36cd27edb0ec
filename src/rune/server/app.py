"""The ASGI application: all routes with their permissions, the OpenAPI document, and the pages: the web interface,
the API reference, and what to do about alerts and error codes.

All files are part of the package and are read once; the pages load nothing from other hosts. The interface is built
into `assets/`: `index.html`, and below `assets/assets/` the files it refers to, whose names contain a hash of their
content and which are therefore cached for ever. A file with `.gz` beside it is sent compressed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Mapping
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import PurePosixPath
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, FastAPI, Path, Request
from pydantic import TypeAdapter
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

import rune
from rune.api.live import NowView
from rune.api.problems import ProblemDocument
from rune.api.values import ValueMatches, ValuePart
from rune.off_loop import off_loop_in_turn
from rune.server.auth import Authenticator, LoopbackAuth, requires
from rune.server.context import ServerContext
from rune.server.health import HEALTH, metrics
from rune.server.resource import Resource
from rune.server.responses import HANDLERS, REMEDIES, ApiError, Reply, accepts_gzip
from rune.server.routes.access import entries, keys, limits, session
from rune.server.routes.credentials import credentials, granting
from rune.server.routes.dead_letters import dead_letters
from rune.server.routes.definitions import definitions, imports
from rune.server.routes.executions.actions import actions, waiting
from rune.server.routes.executions.bulk import bulk
from rune.server.routes.executions.comparison import comparing
from rune.server.routes.executions.executions import executions, starts
from rune.server.routes.executions.items import items
from rune.server.routes.executions.live import live
from rune.server.routes.executions.node_runs import attempts, graphs, recording, runs
from rune.server.routes.handlers import handlers
from rune.server.routes.system import health, nodetypes, stats, system
from rune.server.routes.triggers import triggers
from rune.server.routes.webhooks import hooks
from rune.server.routes.workflows import aliases, workflows
from rune.server.routing import PREFIX, check_declared, hidden
from rune.telemetry.tracing import ARRIVING

HTML, SCRIPT, STYLE = "text/html", "text/javascript", "text/css"
MEDIA_TYPES = {
    ".js": SCRIPT,
    ".css": STYLE,
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".woff2": "font/woff2",
    ".json": "application/json",
    ".map": "application/json",
    ".txt": "text/plain",
}
STATIC_FILES = {
    "/static/rune.svg": ("rune.svg", "image/svg+xml"),
    "/docs": ("docs.html", HTML),
    REMEDIES: ("remedies.html", HTML),
    "/static/remedies.css": ("remedies.css", STYLE),
    "/static/docs.js": ("docs.js", SCRIPT),
    "/static/swagger-ui-bundle.js": ("swagger-ui/swagger-ui-bundle.js", SCRIPT),
    "/static/swagger-ui.css": ("swagger-ui/swagger-ui.css", STYLE),
}
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src {images};"
    " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
CONTENT_SECURITY_POLICY = _POLICY.format(images="'self'")
DOCS_POLICY = _POLICY.format(images="'self' data:")  # the icons are in the style sheet
UI_POLICY = f"{CONTENT_SECURITY_POLICY}; font-src 'self'; require-trusted-types-for 'script'"
STATIC_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
IMMUTABLE = "public, max-age=31536000, immutable"
MAX_FOLDERS = 8  # levels below `assets/`
RESERVED = ("api", "hooks", "metrics", "healthz", "readyz", "version", "assets", "docs", "static")
"""First parts of the paths that never show the interface."""


class Asset(msgspec.Struct, frozen=True):
    """A file of the interface."""

    data: bytes
    media_type: str
    compressed: bytes | None = None


class UserInterface(msgspec.Struct, frozen=True):
    """The built web interface. `build` identifies it: pages compare it with that of the server."""

    index: Asset
    assets: Mapping[str, Asset]
    build: str

    def page(self, headers: Headers) -> Response:
        """Return the response with the page, which shows every path of the interface."""
        extra = {**STATIC_HEADERS, "Content-Security-Policy": UI_POLICY}
        return _reply(self.index, headers, extra)

    def asset(self, name: str, headers: Headers) -> Response:
        """Return the response with one of its files."""
        found = self.assets.get(name)
        if found is None:
            raise ApiError(f"the interface has no file `{name[:120]}`", code="NOT_FOUND")
        return _reply(found, headers, {"X-Content-Type-Options": "nosniff", "Cache-Control": IMMUTABLE})


def _reply(asset: Asset, headers: Headers, extra: Mapping[str, str]) -> Response:
    data, made = asset.data, dict(extra)
    if asset.compressed is not None:
        made["Vary"] = "Accept-Encoding"
        if accepts_gzip(headers.get("accept-encoding", "")):
            data = asset.compressed
            made["Content-Encoding"] = "gzip"
    return Response(data, headers=made, media_type=asset.media_type)


def read_interface(folder: Traversable) -> UserInterface | None:
    """Read the built interface; None if the folder has none."""
    index = folder / "index.html"
    if not index.is_file():
        return None
    data = index.read_bytes()
    page = Asset(data, HTML, _compressed(folder, "index.html"))
    below = folder / "assets"
    assets = dict(_assets(below, "", MAX_FOLDERS)) if below.is_dir() else {}
    return UserInterface(page, assets, hashlib.sha256(data).hexdigest()[:12])


def _assets(folder: Traversable, prefix: str, levels: int) -> list[tuple[str, Asset]]:
    found: list[tuple[str, Asset]] = []
    for each in sorted(folder.iterdir(), key=lambda entry: entry.name):
        suffix = PurePosixPath(each.name).suffix
        if each.is_dir() and levels:
            found += _assets(each, f"{prefix}{each.name}/", levels - 1)
        elif suffix in MEDIA_TYPES:
            packed = _compressed(folder, each.name)
            found.append((prefix + each.name, Asset(each.read_bytes(), MEDIA_TYPES[suffix], packed)))
    return found


def _compressed(folder: Traversable, name: str) -> bytes | None:
    packed = folder / f"{name}.gz"
    return packed.read_bytes() if packed.is_file() else None


@cache
def built_interface() -> UserInterface | None:
    """Return the interface that is part of this package; None if it was not built."""
    return read_interface(files("rune.server") / "assets")


def pages(interface: UserInterface | None) -> APIRouter:
    """Return the routes of the interface and of the API reference."""
    router = hidden()
    page = [requires("page")]

    async def show_page(request: Request) -> Response:
        if interface is None:
            raise ApiError("the interface is not built; the API reference is at /docs", code="NOT_FOUND")
        return interface.page(request.headers)

    async def show_asset(name: Annotated[str, Path(max_length=400)], request: Request) -> Response:
        if interface is None:
            raise ApiError("the interface is not built", code="NOT_FOUND")
        return interface.asset(name, request.headers)

    router.add_api_route("/", show_page, dependencies=page)
    router.add_api_route("/assets/{name:path}", show_asset, dependencies=page)
    for path, (name, kind) in STATIC_FILES.items():
        policy = DOCS_POLICY if path == "/docs" else CONTENT_SECURITY_POLICY
        router.add_api_route(path, _static(name, kind, policy), dependencies=page)
    return router


def _static(name: str, kind: str, policy: str) -> Callable[[], Awaitable[Response]]:
    data = (files("rune.server") / "static" / name).read_bytes()
    headers = {**STATIC_HEADERS, "Content-Security-Policy": policy}

    async def endpoint() -> Response:
        return Response(data, headers=headers, media_type=kind)

    return endpoint


class PageFallback:
    """Answers requests that match no route. The paths of the interface are known to its script alone, so a browser
    that opens one gets the page; every other request is not found. The page contains no data and needs no key."""

    def __init__(self, interface: UserInterface, not_found: ASGIApp) -> None:
        self._interface = interface
        self._not_found = not_found

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and shows_page(scope["method"], scope["path"], Headers(scope=scope)):
            await self._interface.page(Headers(scope=scope))(scope, receive, send)
        else:
            await self._not_found(scope, receive, send)


def shows_page(method: str, path: str, headers: Headers) -> bool:
    """Return whether a request without a route is a browser that opens a path of the interface."""
    first = path.lstrip("/").partition("/")[0].lower()
    return method == "GET" and first not in RESERVED and "text/html" in headers.get("accept", "").lower()


# Routes are matched in this order, so the most frequent ones come first.
RESOURCES: tuple[Resource, ...] = (
    starts,
    executions,
    live,
    actions,
    runs,
    graphs,
    items,
    attempts,
    recording,
    workflows,
    imports,
    aliases,
    limits,
    comparing,
    definitions,
    bulk,
    dead_letters,
    system,
    stats,
    nodetypes,
    credentials,
    triggers,
    handlers,
    granting,
    keys,
    waiting,
    session,
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


class Api(FastAPI):
    """The application without a server: the routes of all resources and their document."""

    def __init__(self) -> None:
        tags = dict.fromkeys(each.tag for each in RESOURCES)
        super().__init__(
            title="Rune",
            version=rune.__version__,
            summary="A durable workflow engine.",
            license_info={"name": "Apache-2.0", "identifier": "Apache-2.0"},
            openapi_tags=[{"name": name} for name in tags],
            openapi_url=None,
            docs_url=None,
            redoc_url=None,
            exception_handlers=HANDLERS,
        )
        self.router.redirect_slashes = False
        # The routes have their prefix already; an included router would be matched before its routes.
        for each in RESOURCES:
            self.router.routes.extend(each.routes)

    def openapi(self) -> dict[str, Any]:
        """Return the OpenAPI document. The problem document is part of all error responses by reference; the `now`
        event occurs in streams only, parts of values and matches in them in place of any value."""
        if self.openapi_schema is None:
            document = super().openapi()
            for view in (ProblemDocument, NowView, ValuePart, ValueMatches):
                schema = TypeAdapter(view).json_schema(
                    ref_template="#/components/schemas/{model}", mode="serialization"
                )
                schemas = {**schema.pop("$defs", {}), view.__name__: schema}
                document["components"]["schemas"].update(schemas)
        return super().openapi()


def make_app(
    server: ServerContext, gate: Authenticator | None = None, interface: UserInterface | None = None
) -> FastAPI:
    """Build the application. By default it serves only requests to the loopback, without authentication, and the web
    interface of this package."""
    app = Api()
    interface = interface or built_interface()
    app.state.server = app.state.process = server
    app.state.gate = gate or LoopbackAuth()
    app.state.build = "" if interface is None else interface.build
    operations = hidden()
    operations.add_api_route(f"{PREFIX}/openapi.json", get_openapi, dependencies=[requires("view")])
    operations.add_api_route("/metrics", metrics, dependencies=[requires("view")])
    if server.engine.instrumentation.tracer is not None:
        app.add_middleware(TraceMiddleware)
    for router in (hooks, operations, pages(interface), health()):
        app.router.routes.extend(router.routes)
    if interface is not None:
        app.router.default = PageFallback(interface, app.router.not_found)
    check_declared(app.router.routes, HEALTH.values())
    return app


def document() -> dict[str, Any]:
    """Return the OpenAPI document."""
    return Api().openapi()


async def get_openapi(request: Request) -> Response:
    # It is built at the first request, which takes some hundred ms.
    return Reply(msgspec.json.encode(await off_loop_in_turn(request.app.openapi)))
