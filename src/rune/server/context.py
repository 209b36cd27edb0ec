"""The master: the engine that does, the reader that answers, and what lies between them and the routes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from rune.runtime.engine import Engine
from rune.runtime.queries.reader import ExecutionReader
from rune.server.live.feed import ChangeNotifier, FeedRegistry
from rune.server.live.fleet_feed import FleetFeed
from rune.server.monitoring import MetricsEndpoint, ReadinessProbe
from rune.server.node_runs import NodeRuns


class ServerContext:
    """What every route reaches."""

    def __init__(self, engine: Engine, reader: ExecutionReader, *, slots: int = 0) -> None:
        self.engine = engine
        self.services = engine.services
        self.reader = reader
        self.clock = engine.backend.clock
        self.started_at = self.clock.now()
        self.slots = slots
        self.pulse = ChangeNotifier(reader)
        self.watches = FeedRegistry(engine, reader, self.pulse)
        self.fleet = FleetFeed(reader, self.pulse)
        self.runs = NodeRuns(engine, reader)
        self.probe = ReadinessProbe(engine, reader)
        self.scrape = MetricsEndpoint(engine)
        self.parsing = asyncio.Semaphore(1)
        self.stopping = asyncio.Event()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[ServerContext]:
        """Watch and probe while the block runs; then everybody who watches is let go."""
        services = [asyncio.create_task(each) for each in (self.pulse.run(), self.probe.run())]
        try:
            yield self
        finally:
            self.stop()
            for service in services:
                service.cancel()
            await asyncio.gather(*services, return_exceptions=True)

    def unready(self) -> str:
        """Why nothing should be asked here now; empty where it may."""
        if self.stopping.is_set():
            return "about to stop"
        return "" if self.probe.ready else self.probe.reason

    def stop(self) -> None:
        """Let go of everybody who watches: they come back to whoever is there then."""
        self.stopping.set()
        self.pulse.close()
