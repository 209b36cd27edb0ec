"""The servers and processes of `bench/rabbitmq.py`: those of `bench/cluster.py`, and a broker."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal

from msgspec.structs import replace

from bench.cluster_stores import NOBODY, SOURCES, Bench, Stores, _cpu
from rune.compose import cluster
from rune.settings import Settings
from tests.services.fleet import Fleet, fleet
from tests.services.rabbitmq import Broker

Statuses = Literal["each", "batched", "none"]


class Brokered(Stores):
    """A vhost for each measure. `bare`: what the bare client did in this run."""

    def __init__(self, folder: Path, broker: Broker, *, quorum: bool, statuses: Statuses) -> None:
        super().__init__(folder)
        self.broker = broker
        self.quorum = quorum
        self.statuses = statuses
        self.bare = 0.0

    async def fresh(self) -> Settings:
        settings = await super().fresh()
        self.broker.api("PUT", f"vhosts/{settings.prefix}")
        kind = "quorum" if self.quorum else "classic"
        url = self.broker.url(settings.prefix)
        return replace(settings, queue=url, queue_kind=kind, statuses=self.statuses)

    def processes(self, workers: Fleet) -> dict[str, float]:
        process = self.broker._process
        assert process is not None
        return {**super().processes(workers), "broker": _cpu(process.pid)}


@asynccontextmanager
async def running(stores: Brokered, *, workers: int = 1) -> AsyncIterator[Bench]:
    settings = await stores.fresh()
    path = os.pathsep.join((SOURCES, os.environ.get("PYTHONPATH", "")))
    more = {
        "PYTHONPATH": path,
        "RUNE_QUEUE_KIND": settings.queue_kind,
        "RUNE_STATUSES": settings.statuses,
    }
    with fleet(Path(settings.home), settings, workers=workers, environment=more) as made:
        async with cluster.running_engine(settings, roles=NOBODY) as engine:
            yield Bench(stores, settings, made, engine)
