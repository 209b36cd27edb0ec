"""The probe: whether the stores were reached lately.

A scrape: the numbers of this process and of the stores, as Prometheus reads them.

Vitals: how a process is, for those who start and replace it.
"""

from __future__ import annotations

import asyncio
import importlib.util
import logging
import platform
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Protocol

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

import rune
from rune.runtime.engine import Engine
from rune.runtime.queries.reader import ExecutionReader
from rune.runtime.store_stats import StoreStats
from rune.server.responses import HANDLERS, ApiError, Reply

if TYPE_CHECKING:
    from rune.telemetry.prometheus import PrometheusMetrics

log = logging.getLogger("rune.master.probe")

PROBE_PERIOD_S = 5.0  # s
MAX_MISSED = 2


class ReadinessProbe:
    """Touches the stores with every heartbeat: through a reader where there is one, or else as the engine does. With
    `beating` the engine's own heartbeat must have been taken too."""

    def __init__(
        self, engine: Engine, reader: ExecutionReader | None = None, *, beating: bool = False
    ) -> None:
        self._state = engine.backend.state
        self._journal = engine.backend.journal
        self._heartbeat = engine.heartbeat if beating else None
        self._reader = reader
        self._touched: float | None = None
        self.reason = "only just starting, or held up"

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self.touch()
            await asyncio.sleep(PROBE_PERIOD_S)

    async def touch(self) -> None:
        """Reach for the stores once."""
        try:
            async with asyncio.timeout(PROBE_PERIOD_S):
                await self._state.next_due()
                await self._look()
        except Exception as error:
            # Whatever it was: a probe that dies would leave the last answer standing.
            self.reason = f"a store does not answer: {str(error) or type(error).__name__}"
            log.warning("a store does not answer: %s", error)
            return
        self._touched = time.monotonic()

    async def _look(self) -> None:
        if self._reader is None:
            await self._journal.accepted("")
        else:
            await self._reader.executions(limit=1)

    @property
    def ready(self) -> bool:
        """Whether the stores answered within two heartbeats."""
        if self._touched is None:
            return False
        last = self._touched
        if self._heartbeat is not None:
            last = min(last, self._heartbeat.beaten_at)
        return time.monotonic() - last < MAX_MISSED * PROBE_PERIOD_S


class ReportsMetrics(Protocol):
    """Somebody who has numbers, once its engine runs."""

    @property
    def scrape(self) -> MetricsEndpoint | None: ...


class MetricsEndpoint:
    """Of one engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._gauges = StoreStats(engine.backend, lambda: engine.busy, engine.slots, engine.roles)
        self._metrics: PrometheusMetrics | None = None

    async def text(self) -> tuple[bytes, str]:
        """What there is to say, and how it is written."""
        from rune.telemetry.prometheus import CONTENT_TYPE, PrometheusMetrics  # noqa: PLC0415 - an extra

        if self._metrics is None:
            self._metrics = PrometheusMetrics(
                self._engine.witness.meter, rune.__version__, self._engine.roles
            )
        return self._metrics.text(await self._gauges.read()), CONTENT_TYPE


async def metrics(request: Request) -> Response:
    """Everything that is measured."""
    if importlib.util.find_spec("prometheus_client") is None:
        raise ApiError("metrics need `prometheus-client`: install `rune-engine[telemetry]`", code="NOT_READY")
    measured: ReportsMetrics = request.app.state.living
    if measured.scrape is None:
        raise ApiError("only just starting", code="NOT_READY")
    data, kind = await measured.scrape.text()
    return Response(data, media_type=kind)


metrics.need = "view"  # type: ignore[attr-defined]


class ReportsHealth(Protocol):
    """Somebody who knows why no work should be sent here."""

    def unready(self) -> str:
        """The reason; empty where there is none."""


class HealthState:
    """How a process without an API is. It answers before its engine runs, and while that drains."""

    def __init__(self) -> None:
        self._probe: ReadinessProbe | None = None
        self._stopping = False
        self.scrape: MetricsEndpoint | None = None

    def unready(self) -> str:
        if self._stopping:
            return "about to stop"
        if self._probe is None:
            return "only just starting"
        return "" if self._probe.ready else self._probe.reason

    @asynccontextmanager
    async def of(self, engine: Engine) -> AsyncIterator[None]:
        """Probe an engine while the block runs; whoever leaves it is about to stop."""
        self._probe = ReadinessProbe(engine, beating=True)
        self.scrape = MetricsEndpoint(engine)
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
    living: ReportsHealth = request.app.state.living
    if reason := living.unready():
        raise ApiError(reason, code="NOT_READY")
    return Reply({"status": "ready"})


async def version(request: Request) -> Response:
    """What runs here."""
    return Reply(
        {"name": "rune", "version": rune.__version__, "api": "v1", "python": platform.python_version()}
    )


HEALTH = {"/healthz": healthz, "/readyz": readyz, "/version": version}


def health_app(living: ReportsHealth) -> Starlette:
    """These three, the numbers, and nothing else."""
    answered = {**HEALTH, "/metrics": metrics}
    routes = [Route(path, endpoint, methods=["GET"]) for path, endpoint in answered.items()]
    app = Starlette(routes=routes, exception_handlers=HANDLERS)
    app.state.living = living
    return app
