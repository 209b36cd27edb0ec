"""The servers and processes of `bench/rabbitmq.py`: those of `bench/cluster.py` plus a broker."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from msgspec.structs import replace

from bench.cluster_stores import Stores, cpu_seconds
from rune.settings import Settings
from tests.support.services.fleet import Fleet
from tests.support.services.rabbitmq import Broker

Statuses = Literal["each", "batched", "none"]


class Brokered(Stores):
    """Stores with a new vhost for each measure. `bare` is the rate of the bare client in this run."""

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
        return {**super().processes(workers), "broker": cpu_seconds(process.pid)}
