"""Health: the three routes that everybody may ask."""

from __future__ import annotations

import platform

from fastapi import APIRouter, Request
from starlette.responses import Response

import rune
from rune.master.problems import ApiError
from rune.master.reply import Reply
from rune.master.service import Master


async def healthz(request: Request) -> Response:
    """The process lives."""
    return Reply({"status": "ok"})


async def readyz(request: Request) -> Response:
    """The stores answered within two heartbeats, and nobody has asked us to stop."""
    master: Master = request.app.state.master
    if master.stopping.is_set():
        raise ApiError("about to stop", code="NOT_READY")
    if not master.probe.ready:
        raise ApiError(master.probe.reason, code="NOT_READY")
    return Reply({"status": "ready"})


async def version(request: Request) -> Response:
    """What runs here."""
    return Reply(
        {"name": "rune", "version": rune.__version__, "api": "v1", "python": platform.python_version()}
    )


HEALTH = {"/healthz": healthz, "/readyz": readyz, "/version": version}


def health() -> APIRouter:
    """The router without a gate."""
    router = APIRouter()
    for path, endpoint in HEALTH.items():
        router.add_api_route(path, endpoint, methods=["GET"], include_in_schema=False)
    return router
