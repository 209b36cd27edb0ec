"""Measures chains on a Redis Cluster of three masters, each with a replica, and on one server in the same run.

    python bench/redis_cluster.py [--quick] [--workers N]

All servers share the cores of this machine, so the rate shows what the cluster costs here, not what three machines
reach. What carries over is the CPU time per node, and how it is spread over the masters. The cluster writes no
append-only file and is reached over TCP, the single server writes one and is reached over a Unix socket.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path

# Remove this folder: its file names shadow standard library modules.
sys.path.pop(0)
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from msgspec.structs import replace

from bench.cluster_load import Load, chained, listed, new_folder
from bench.cluster_stores import Stores, cpu_seconds, running
from rune.cli.bench.workloads import percentile
from rune.cli.commands.serve import run_on_uvloop
from rune.settings import Settings
from tests.support.services.fleet import Fleet
from tests.support.services.redis_cluster import RedisClusterServers


class ClusterStores(Stores):
    """PostgreSQL, a Redis Cluster and a single Redis server; a measure uses one of the two."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.servers = RedisClusterServers()
        self.clustered = False
        self._masters = self.servers.masters()

    async def fresh(self) -> Settings:
        settings = await super().fresh()
        if not self.clustered:
            return settings
        return replace(settings, state=self.servers.url, queue=self.servers.url)

    def stop(self) -> None:
        self.servers.stop()
        super().stop()

    def processes(self, workers: Fleet) -> dict[str, float]:
        """Return the CPU seconds used so far by each kind of process, and by each master."""
        used = super().processes(workers)
        if not self.clustered:
            return used
        del used["redis"]
        masters = [cpu_seconds(each.process.pid) for each in self._masters]
        replicas = [each for each in self.servers.nodes if each not in self._masters]
        return {
            **used,
            "masters": sum(masters),
            **{f"master {number}": each for number, each in enumerate(masters, 1)},
            "replicas": sum(cpu_seconds(each.process.pid) for each in replicas),
        }


async def measure(workers: Sequence[int], scale: float) -> None:
    with contextlib.ExitStack() as stack:
        stores = ClusterStores(stack.enter_context(new_folder("rune-redis-cluster-")))
        stack.callback(stores.stop)
        for count in workers:
            for clustered in (False, True):
                stores.clustered = clustered
                async with running(stores, workers=count) as bench:
                    load = await chained(bench, scale, effectful=True)
                    await bench.audited(load.nodes, load.nodes)
                print(_line(load, count, clustered=clustered), flush=True)


def _line(load: Load, workers: int, *, clustered: bool) -> str:
    redis = "three masters" if clustered else "one server"
    p50 = percentile(load.took, 0.5)
    return (
        f"{redis}, {workers} worker(s), {os.cpu_count()} cores: {load.rate:,.0f} nodes/s, p50 {p50:,.0f} ms\n"
        f"    cpu µs per node: {listed(load.cpu, 0)}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="run a tenth of the load")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2], help="numbers of worker processes")
    given = parser.parse_args()
    run_on_uvloop(measure(given.workers, 0.1 if given.quick else 1.0))


if __name__ == "__main__":
    main()
