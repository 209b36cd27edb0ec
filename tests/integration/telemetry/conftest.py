"""Fixture: a cluster with metrics, traces and JSON logs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.request import urlopen

import pytest
from msgspec.structs import replace

from rune.bootstrap import fresh_key, running_engine
from rune.runtime.engine import Engine
from tests.support.backends import stores
from tests.support.services.fleet import Fleet, fleet
from tests.support.services.postgres import free_port
from tests.support.trace_collector import Collector, running_collector

NODES = ("tests.integration.telemetry.nodes",)


class MonitoredCluster:
    """Cluster processes, their metrics ports, and the trace collector."""

    def __init__(self, fleet: Fleet, ports: dict[str, int], collector: Collector, key: str) -> None:
        self.fleet = fleet
        self.ports = ports
        self.collector = collector
        self.settings = replace(
            fleet.settings, nodes=NODES, secret_key=key, traces=collector.url, http_allow=("127.0.0.1",)
        )

    def scrapes(self) -> dict[str, str]:
        """Return the metrics of each process."""
        found = {}
        for name, port in self.ports.items():
            with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
                found[name] = answer.read().decode()
        return found

    @asynccontextmanager
    async def client_engine(self) -> AsyncIterator[Engine]:
        """Open an engine that starts executions and runs none."""
        async with running_engine(self.settings, working=False) as engine:
            yield engine


@pytest.fixture(scope="package")
def monitored(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MonitoredCluster]:
    """Three workers and a scheduler."""
    folder: Path = tmp_path_factory.mktemp("monitored")
    settings, key = stores(folder), fresh_key()
    with running_collector() as collector:
        environment = {
            "RUNE_NODES": ",".join(NODES),
            "RUNE_IN_PLACE": "false",
            "RUNE_LOG": "json",
            "RUNE_SECRET_KEY": key,
            "RUNE_HTTP_ALLOW": "127.0.0.1",
            "RUNE_SLOTS": "2",  # so that every worker gets nodes
            "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
            "OTEL_BSP_SCHEDULE_DELAY": "200",
        }
        with fleet(folder, settings, workers=0, schedulers=0, environment=environment) as made:
            ports = {f"worker-{number}": free_port() for number in range(3)} | {"scheduler": free_port()}
            for name, port in ports.items():
                role = name.partition("-")[0]
                made.start(role, "--health-port", str(port))  # type: ignore[arg-type]
            for each in made.processes:
                each.wait_ready()
            yield MonitoredCluster(made, ports, collector, key)
