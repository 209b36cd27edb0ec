"""A fleet whose processes are scraped, traced and read: three workers that each run every node where it comes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.request import urlopen

import pytest
from msgspec.structs import replace

from rune.bootstrap import fresh_key, running_engine
from rune.runtime.engine import Engine
from tests.integration.cluster.standing import stores
from tests.integration.telemetry.collector import Collector, collecting
from tests.support.services.fleet import Fleet, fleet
from tests.support.services.postgres import free_port

NODES = ("tests.integration.telemetry.acting_nodes",)


class Watched:
    """The fleet, where it is scraped, and where its spans go."""

    def __init__(self, fleet: Fleet, ports: dict[str, int], collector: Collector, key: str) -> None:
        self.fleet = fleet
        self.ports = ports
        self.collector = collector
        self.settings = replace(
            fleet.settings, nodes=NODES, secret_key=key, traces=collector.url, http_allow=("127.0.0.1",)
        )

    def scrapes(self) -> dict[str, str]:
        """What each process says of itself."""
        found = {}
        for name, port in self.ports.items():
            with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
                found[name] = answer.read().decode()
        return found

    @asynccontextmanager
    async def asked(self) -> AsyncIterator[Engine]:
        """Somebody who starts and runs nothing."""
        async with running_engine(self.settings, working=False) as engine:
            yield engine


@pytest.fixture(scope="package")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    """Three workers and a scheduler."""
    folder: Path = tmp_path_factory.mktemp("watched")
    settings, key = stores(folder), fresh_key()
    with collecting() as collector:
        environment = {
            "RUNE_NODES": ",".join(NODES),
            "RUNE_IN_PLACE": "false",
            "RUNE_LOG": "json",
            "RUNE_SECRET_KEY": key,
            "RUNE_HTTP_ALLOW": "127.0.0.1",
            "RUNE_SLOTS": "2",  # so that there is something to do for all of them
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
            yield Watched(made, ports, collector, key)
