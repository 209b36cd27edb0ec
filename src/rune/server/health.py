"""Health, readiness and metrics of a process, for supervisors and Prometheus."""

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
from rune.api.system import ServerVersion
from rune.ports.inspection import ChecksWrites
from rune.runtime.engine import Engine
from rune.runtime.queries.reader import ExecutionReader
from rune.runtime.queries.store_stats import StoreStats
from rune.server.responses import HANDLERS, ApiError, Reply
from rune.telemetry.counters import Counters

if TYPE_CHECKING:
    from rune.telemetry.prometheus import PrometheusMetrics

log = logging.getLogger("rune.server.probe")

PROBE_PERIOD_S = 5.0
MAX_MISSED_PROBES = 2


class ReadinessProbe:
    """Reads from the stores periodically, through the reader if there is one, and checks that journal and blobs can be
    written. With `beating`, the heartbeat of the engine must be recent too."""

    def __init__(
        self, engine: Engine, reader: ExecutionReader | None = None, *, beating: bool = False
    ) -> None:
        self._state = engine.backend.state
        self._journal = engine.backend.journal
        self._blob = engine.backend.blob
        self._heartbeat = engine.heartbeat if beating else None
        self._marks = engine.backend.block_marks
        self._reader = reader
        self._read_at: float | None = None
        self.reason = "starting"

    async def run(self) -> None:
        while True:
            await self.touch()
            await asyncio.sleep(PROBE_PERIOD_S)

    async def touch(self) -> None:
        """Read from the stores once."""
        try:
            async with asyncio.timeout(PROBE_PERIOD_S):
                await self._state.next_due()
                await self._marks.refresh()
                await self._read()
                for store in (self._journal, self._blob):
                    if isinstance(store, ChecksWrites):
                        await store.check_writable()
        except Exception as error:
            # Any exception counts: if the probe died, the last result would remain.
            self.reason = f"a store is unavailable: {str(error) or type(error).__name__}"
            log.warning("a store is unavailable: %s", error)
            return
        self._read_at = time.monotonic()

    async def _read(self) -> None:
        if self._reader is None:
            await self._journal.accepted("")
        else:
            await self._reader.executions(limit=1)

    @property
    def quarantined(self) -> int:
        """How many executions are in quarantine, as far as the process knows."""
        return len(self._marks.quarantined())

    @property
    def ready(self) -> bool:
        """Whether the stores responded, and could be written, within the last two periods."""
        if self._read_at is None:
            return False
        now = time.monotonic()
        if now - self._read_at >= MAX_MISSED_PROBES * PROBE_PERIOD_S:
            return False
        if self._heartbeat is None:
            return True
        period = max(self._heartbeat.interval_s, PROBE_PERIOD_S)
        return now - self._heartbeat.beaten_at < MAX_MISSED_PROBES * period


class ReportsMetrics(Protocol):
    """Provides metrics, once its engine runs."""

    @property
    def metrics(self) -> MetricsEndpoint | None: ...


class MetricsEndpoint:
    """The metrics of one engine and of its stores, in the text format of Prometheus."""

    def __init__(self, engine: Engine, reader: ExecutionReader | None = None) -> None:
        self._engine = engine
        self._gauges = StoreStats(engine.backend, lambda: engine.busy, engine.slots, engine.roles, reader)
        self._metrics: PrometheusMetrics | None = None

    async def text(self) -> tuple[bytes, str]:
        """Return the metrics and their content type."""
        from rune.telemetry.prometheus import CONTENT_TYPE, PrometheusMetrics  # noqa: PLC0415 - an extra

        if self._metrics is None:
            self._metrics = PrometheusMetrics(
                self._engine.instrumentation.counters, rune.__version__, self._engine.roles
            )
        return self._metrics.text(await self._gauges.read()), CONTENT_TYPE


async def metrics(request: Request) -> Response:
    if importlib.util.find_spec("prometheus_client") is None:
        raise ApiError(
            "metrics require `prometheus-client`: install `rune-engine[telemetry]`", code="NOT_READY"
        )
    process: ReportsMetrics = request.app.state.process
    if process.metrics is None:
        raise ApiError("starting", code="NOT_READY")
    data, kind = await process.metrics.text()
    return Response(data, media_type=kind)


class ReportsHealth(Protocol):
    """Provides the readiness of the process."""

    def unready(self) -> str:
        """Return the reason; empty if the process is ready."""

    @property
    def counters(self) -> Counters | None:
        """The counters of its engine; None before it runs."""

    @property
    def quarantined(self) -> int:
        """How many executions the process has paused because they block it."""


class HealthState:
    """The health of a process without an API, also before its engine runs and while it drains."""

    def __init__(self) -> None:
        self._probe: ReadinessProbe | None = None
        self._stopping = False
        self.metrics: MetricsEndpoint | None = None
        self.counters: Counters | None = None

    @property
    def quarantined(self) -> int:
        return 0 if self._probe is None else self._probe.quarantined

    def unready(self) -> str:
        if self._stopping:
            return "shutting down"
        if self._probe is None:
            return "starting"
        return "" if self._probe.ready else self._probe.reason

    @asynccontextmanager
    async def of(self, engine: Engine) -> AsyncIterator[None]:
        """Probe an engine during the block. After the block the process is shutting down."""
        self._probe = ReadinessProbe(engine, beating=True)
        self.metrics = MetricsEndpoint(engine)
        self.counters = engine.instrumentation.counters
        probe = asyncio.create_task(self._probe.run())
        try:
            yield
        finally:
            self._stopping = True
            probe.cancel()
            await asyncio.gather(probe, return_exceptions=True)


async def healthz(request: Request) -> Response:
    """Report that the process is alive."""
    return Reply({"status": "ok"})


async def readyz(request: Request) -> Response:
    """Report whether the stores respond and the process is not shutting down."""
    process: ReportsHealth = request.app.state.process
    if reason := process.unready():
        raise ApiError(reason, code="NOT_READY")
    found: dict[str, object] = {"status": "ready"}
    counters = process.counters
    if counters is not None and counters.blocks:
        # The stack that blocked it is in the log: this endpoint needs no key.
        found["loop_blocked"] = {"count": counters.blocks, "longest_s": round(counters.blocks_longest, 1)}
    if process.quarantined:
        found["quarantined"] = process.quarantined
    return Reply(found)


async def version(request: Request) -> Response:
    """Report the version of Rune and of Python, and the build of the web interface."""
    return Reply(
        ServerVersion(
            name="rune",
            version=rune.__version__,
            api="v1",
            python=platform.python_version(),
            build=getattr(request.app.state, "build", ""),
        )
    )


HEALTH = {"/healthz": healthz, "/readyz": readyz, "/version": version}


def health_app(process: ReportsHealth) -> Starlette:
    """Return an application that serves only health checks and metrics."""
    endpoints = {**HEALTH, "/metrics": metrics}
    routes = [Route(path, endpoint, methods=["GET"]) for path, endpoint in endpoints.items()]
    app = Starlette(routes=routes, exception_handlers=HANDLERS)
    app.state.process = process
    return app
