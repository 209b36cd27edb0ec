"""Vitals: how a process is, for those who start and replace it."""

from __future__ import annotations

import asyncio
import platform
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

import rune
from rune.master.probe import Probe
from rune.master.problems import HANDLERS, ApiError
from rune.master.reply import Reply
from rune.master.scrape import Scrape, metrics
from rune.runtime.engine import Engine


class Living(Protocol):
    """Somebody who knows why no work should be sent here."""

    def unready(self) -> str:
        """The reason; empty where there is none."""


class Vitals:
    """How a process without an API is. It answers before its engine runs, and while that drains."""

    def __init__(self) -> None:
        self._probe: Probe | None = None
        self._stopping = False
        self.scrape: Scrape | None = None

    def unready(self) -> str:
        if self._stopping:
            return "about to stop"
        if self._probe is None:
            return "only just starting"
        return "" if self._probe.ready else self._probe.reason

    @asynccontextmanager
    async def of(self, engine: Engine) -> AsyncIterator[None]:
        """Probe an engine while the block runs; whoever leaves it is about to stop."""
        self._probe = Probe(engine, beating=True)
        self.scrape = Scrape(engine)
        probing = asyncio.create_task(self._probe.run())
        try:
            yield
        finally:
            self._stopping = True
            probing.cancel()
            await asyncio.gather(probing, return_exceptions=True)


async def healthz(request: Request) -> Response:
    """The process lives."""
    return Reply({"status": "ok"})


async def readyz(request: Request) -> Response:
    """The stores answered within two heartbeats, and nobody has asked us to stop."""
    living: Living = request.app.state.living
    if reason := living.unready():
        raise ApiError(reason, code="NOT_READY")
    return Reply({"status": "ready"})


async def version(request: Request) -> Response:
    """What runs here."""
    return Reply(
        {"name": "rune", "version": rune.__version__, "api": "v1", "python": platform.python_version()}
    )


HEALTH = {"/healthz": healthz, "/readyz": readyz, "/version": version}


def health_app(living: Living) -> Starlette:
    """These three, the numbers, and nothing else."""
    answered = {**HEALTH, "/metrics": metrics}
    routes = [Route(path, endpoint, methods=["GET"]) for path, endpoint in answered.items()]
    app = Starlette(routes=routes, exception_handlers=HANDLERS)
    app.state.living = living
    return app
