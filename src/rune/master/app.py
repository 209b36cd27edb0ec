"""The application: routes on routers, routers behind the gate."""

from __future__ import annotations

from typing import Any

import msgspec
from fastapi import FastAPI, Request
from starlette.responses import Response

import rune
from rune.master.access.declared import check_declared
from rune.master.access.entries import entries
from rune.master.access.granting import granting
from rune.master.access.keys import keys
from rune.master.arriving import Arriving
from rune.master.gate import Gate, LoopbackGate
from rune.master.openapi import openapi
from rune.master.operation import PREFIX, Resource, add, gated
from rune.master.problems import HANDLERS
from rune.master.reply import Reply
from rune.master.routes.acting import acting
from rune.master.routes.aliases import aliases
from rune.master.routes.comparing import comparing
from rune.master.routes.credentials import credentials
from rune.master.routes.definitions import definitions
from rune.master.routes.executions import executions
from rune.master.routes.health import health
from rune.master.routes.hooks import add_hooks
from rune.master.routes.letters import letters
from rune.master.routes.limits import limits
from rune.master.routes.live import add_sockets, live
from rune.master.routes.machinery import machinery
from rune.master.routes.nodetypes import nodetypes
from rune.master.routes.page import add_page
from rune.master.routes.runs import runs
from rune.master.routes.starts import starts
from rune.master.routes.triggers import triggers
from rune.master.routes.workflows import workflows
from rune.master.scrape import metrics
from rune.master.service import Master
from rune.master.vitals import HEALTH

# The router looks at one route after the other, so what is asked for most comes first.
RESOURCES: tuple[Resource, ...] = (
    starts,
    executions,
    live,
    acting,
    runs,
    workflows,
    aliases,
    limits,
    comparing,
    definitions,
    letters,
    machinery,
    nodetypes,
    credentials,
    triggers,
    granting,
    keys,
    entries,
)


def make_app(master: Master, gate: Gate | None = None) -> FastAPI:
    """The API over a master. Without a gate of its own it answers the loopback only."""
    app = FastAPI(
        title="Rune",
        version=rune.__version__,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        exception_handlers=HANDLERS,
    )
    app.state.master = app.state.living = master
    app.state.gate = gate or LoopbackGate()
    router = gated()
    for resource in RESOURCES:
        for operation in resource.operations:
            add(router, operation)
    add_sockets(router)
    add_hooks(router)
    _add_document(router)
    add_page(router)
    router.add_api_route("/metrics", metrics, methods=["GET"], include_in_schema=False)
    if master.engine.witness.tracer is not None:
        app.add_middleware(Arriving)
    app.router.redirect_slashes = False
    app.router.routes.extend((*health().routes, *router.routes))
    check_declared(app.router.routes, HEALTH.values())
    return app


def document() -> dict[str, Any]:
    """The OpenAPI document."""
    return openapi(RESOURCES)


def _add_document(router: Any) -> None:
    made: list[bytes] = []

    async def get_openapi(request: Request) -> Response:
        if not made:
            made.append(msgspec.json.encode(document()))
        return Reply(made[0])

    get_openapi.need = "view"  # type: ignore[attr-defined]
    router.add_api_route(f"{PREFIX}/openapi.json", get_openapi, methods=["GET"], include_in_schema=False)
