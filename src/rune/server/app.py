"""The ASGI application: all routes with their permissions, the OpenAPI document and the pages."""

from __future__ import annotations

from typing import Any

import msgspec
from fastapi import APIRouter, FastAPI, Request
from pydantic import TypeAdapter
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

import rune
from rune.server.access.auth import Authenticator, LoopbackAuth, requires
from rune.server.context import ServerContext
from rune.server.health import HEALTH, metrics
from rune.server.live.now import NowView
from rune.server.responses import HANDLERS, ProblemDocument, Reply
from rune.server.routes.access import entries, keys, limits, session
from rune.server.routes.aliases import aliases
from rune.server.routes.credentials import credentials, granting
from rune.server.routes.dead_letters import dead_letters
from rune.server.routes.definitions import definitions
from rune.server.routes.executions.actions import actions
from rune.server.routes.executions.bulk import bulk
from rune.server.routes.executions.comparison import comparing
from rune.server.routes.executions.executions import executions, starts
from rune.server.routes.executions.items import items
from rune.server.routes.executions.live import live
from rune.server.routes.executions.node_runs import attempts, graphs, recording, runs
from rune.server.routes.executions.waits import waiting
from rune.server.routes.imports import imports
from rune.server.routes.system import health, nodetypes, stats, system
from rune.server.routes.triggers import triggers
from rune.server.routes.webhooks import hooks
from rune.server.routes.workflows import workflows
from rune.server.routing import PREFIX, check_declared, hidden
from rune.server.views.pages import PageFallback, UserInterface, built_interface, pages
from rune.server.views.value_parts import ValueMatches, ValuePart
from rune.telemetry.tracing import ARRIVING

# Routes are matched in this order, so the most frequent ones come first.
RESOURCES: tuple[APIRouter, ...] = (
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
        tags = dict.fromkeys(tag for each in RESOURCES for tag in each.tags)
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
    return Reply(msgspec.json.encode(request.app.openapi()))
