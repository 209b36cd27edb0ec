"""The objects that all routes share: the engine, the reader, the live feeds, the probes."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any

from rune.ports.inspection import Finding
from rune.runtime.components import LocalServices
from rune.runtime.engine import Engine
from rune.runtime.live_reporter import LiveReporter
from rune.runtime.messaging.status_listener import StatusListener
from rune.runtime.queries.comparison import Comparison
from rune.runtime.queries.reader import ExecutionReader
from rune.runtime.queries.value_parts import ValueCache
from rune.runtime.services.audit_log import Refusals
from rune.server.bodies import BytesInFlight
from rune.server.health import MetricsEndpoint, ReadinessProbe
from rune.server.live.feed import (
    DEFAULT_STREAM_LIMITS,
    ChangeNotifier,
    FeedRegistry,
    StreamLimits,
    StreamSlots,
)
from rune.server.live.fleet_feed import FleetFeed
from rune.server.turns import Turns
from rune.server.views.node_runs import NodeRuns
from rune.server.views.overviews import OverviewCache
from rune.server.views.statistics import StatisticsCache
from rune.settings import SettingValue

Checks = Callable[[], Awaitable[Sequence[Finding]]]


async def _no_checks() -> Sequence[Finding]:
    return ()


class ServerContext:
    """The shared objects of one server process."""

    def __init__(
        self,
        engine: Engine,
        reader: ExecutionReader,
        *,
        slots: int = 0,
        streams: StreamLimits = DEFAULT_STREAM_LIMITS,
        settings: Sequence[SettingValue] = (),
        checks: Checks = _no_checks,
        services: LocalServices | None = None,
    ) -> None:
        """`checks` runs those of `rune doctor`; `services` are those of the engine unless another process has them."""
        self.engine = engine
        self.services: LocalServices = services or engine.services
        self.reader = reader
        self.clock = engine.backend.clock
        self.started_at = self.clock.now()
        self.slots = slots
        self.settings = settings
        self.checks = checks
        self.refusals = Refusals(engine.services.access.audit_log)
        self.changes = ChangeNotifier(reader)
        self.streams = StreamSlots(streams)
        self.overviews = OverviewCache(engine, reader)
        self.feeds = FeedRegistry(engine, reader, self.overviews, self.changes, self.streams)
        self.fleet = FleetFeed(reader, self.changes)
        self.node_runs = NodeRuns(engine, reader)
        self.values = ValueCache()
        self.statistics = StatisticsCache(reader.statistics, engine.backend.counts, self.clock)
        self.layouts: OrderedDict[str, bytes] = OrderedDict()  # by entity tag, as JSON
        self.comparisons: OrderedDict[tuple[str, str], Comparison] = OrderedDict()
        self.probe = ReadinessProbe(engine, reader)
        self.metrics = MetricsEndpoint(engine, reader)
        self.counters = engine.instrumentation.counters
        self.bodies = BytesInFlight()
        self.parsing = Turns()
        self.parsing_yaml = Turns()  # of large documents, which take seconds
        self.reading = Turns()
        """For requests that read whole executions."""
        self.checking = asyncio.Semaphore(1)
        self.stopping = asyncio.Event()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[ServerContext]:
        """Run the change notifier, the live follower, the readiness probe and bulk jobs during the block, then end all
        event streams."""
        loops = [
            self.changes.run(),
            self.probe.run(),
            self.engine.live.run(),
            self.engine.services.bulk.run(),
            self.statistics.run(),
            *self._event_loops(),
        ]
        services = [asyncio.create_task(each) for each in loops]
        try:
            yield self
        finally:
            self.stop()
            for service in services:
                service.cancel()
            await asyncio.gather(*services, return_exceptions=True)
            await self.refusals.aclose()

    def _event_loops(self) -> list[Coroutine[Any, Any, None]]:
        """Return the loops that consume statuses and completions, on a backend that publishes them."""
        backend = self.engine.backend
        if backend.event_consumer is None or backend.live is None:
            return []
        listener = StatusListener(
            f"{self.engine.name} statuses", self.reader.plan, self.feeds.executions, self.changes.wake
        )
        return [backend.event_consumer.run(listener), LiveReporter(listener, backend.live).run()]

    @property
    def quarantined(self) -> int:
        """How many executions are in quarantine."""
        return self.probe.quarantined

    def unready(self) -> str:
        """Return why the server is not ready; empty if it is."""
        if self.stopping.is_set():
            return "shutting down"
        return "" if self.probe.ready else self.probe.reason

    def stop(self) -> None:
        """End all event streams; their clients reconnect to another process."""
        self.stopping.set()
        self.changes.close()
        self.feeds.close()
