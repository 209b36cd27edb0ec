"""Rune: the same jobs with effectful nodes, so that every step is claimed, recorded and queued separately. The limit of
each job is measured in the same run: a loop without an engine that writes the same rows to the same stores.

`--backend embedded` runs in this process. `redis` and `rabbitmq` start one worker and one scheduler process; this
process starts executions and waits for their ends.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import msgspec

from bench.cluster_load import new_folder
from bench.cluster_stores import Stores, limit, running
from bench.peers.figures import CHAIN_STEPS, CONCURRENCY, WARM_UP, report
from bench.rabbitmq_stores import Brokered
from rune.bootstrap.sqlite import running_engine
from rune.cli.bench import workloads
from rune.cli.bench.workloads import bare_nodes, completed
from rune.cli.commands.serve import run_on_uvloop
from rune.runtime.engine import Engine
from rune.settings import Settings
from tests.support.services.rabbitmq import new_broker

CHUNK = 256
COMMITS = 100
LANES = 2
"""Of the bare client of `bench/cluster_stores.py`."""


@asynccontextmanager
async def engine_on(backend: str, folder: Path) -> AsyncIterator[tuple[Engine, Settings]]:
    """Yield an engine on new stores, and its settings."""
    async with AsyncExitStack() as stack:
        if backend == "embedded":
            settings = Settings(home=str(folder / "home"))
            yield await stack.enter_async_context(running_engine(settings)), settings
            return
        stores = Stores(folder) if backend == "redis" else _with_broker(folder)
        stack.callback(stores.stop)
        bench = await stack.enter_async_context(running(stores))
        yield bench.engine, bench.settings


def _with_broker(folder: Path) -> Stores:
    return Brokered(folder, new_broker(), quorum=False, statuses="each")


async def measure(backend: str, chains: int, items: int, samples: int, folder: Path) -> None:
    async with engine_on(backend, folder) as (engine, settings):
        catalogue = engine.registry.catalogue
        for steps in (1, 3):
            plan = workloads.chain(steps, catalogue, effectful=True)
            took = await completed(engine, plan, [b"{}"] * (WARM_UP + samples), 1)
            report(f"latency-{steps}", statistics.median(took[WARM_UP:]), "ms")
        plan = workloads.chain(CHAIN_STEPS, catalogue, effectful=True)
        await completed(engine, plan, [b"{}"] * CONCURRENCY, CONCURRENCY)
        began = time.perf_counter()
        await completed(engine, plan, [b"{}"] * chains, CONCURRENCY)
        report("chain", chains * CHAIN_STEPS / (time.perf_counter() - began), "steps/s")
        plan = workloads.fan(catalogue, effectful=True)
        await completed(engine, plan, [b'{"xs": [1, 2, 3]}'], 1)
        payload = msgspec.json.encode({"xs": list(range(items))})
        began = time.perf_counter()
        await completed(engine, plan, [payload], 1)
        report("fan", items / (time.perf_counter() - began), "items/s")
        if backend == "embedded":
            measure_file(folder, chains * CHAIN_STEPS, items)
        else:
            await measure_servers(settings, chains * CHAIN_STEPS, items)


def measure_file(folder: Path, steps: int, items: int) -> None:
    """Print the limits of the embedded backend: rows in SQLite, as many per commit as there are lanes or in a chunk."""
    steps_limit = bare_nodes(folder / "chain.db", nodes=steps, claims=True, per_commit=CONCURRENCY)
    report("chain-limit", steps_limit.rate, "steps/s")
    items_limit = bare_nodes(folder / "fan.db", nodes=items, claims=True, per_commit=CHUNK)
    report("fan-limit", items_limit.rate, "items/s")
    commit = 1000 / bare_nodes(folder / "commit.db", nodes=COMMITS, claims=True, per_commit=1).rate
    for steps_of_one in (1, 3):
        report(f"latency-{steps_of_one}-limit", commit, "ms a commit")


async def measure_servers(settings: Settings, steps: int, items: int) -> None:
    """Print the limits of a cluster: rows in PostgreSQL and two scripts in Redis per step, in two lanes."""
    rate = await limit(settings, nodes=steps, group=CONCURRENCY, claims=True, scripts=2)
    report("chain-limit", rate, "steps/s")
    report("fan-limit", await limit(settings, nodes=items, group=CHUNK, claims=True, scripts=2), "items/s")
    commit = LANES * 1000 / await limit(settings, nodes=COMMITS, group=1, claims=True, scripts=2)
    for steps_of_one in (1, 3):
        report(f"latency-{steps_of_one}-limit", commit, "ms a commit")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", choices=("embedded", "redis", "rabbitmq"), default="embedded")
    parser.add_argument("--chains", type=int, default=1_000)
    parser.add_argument("--items", type=int, default=10_000)
    parser.add_argument("--samples", type=int, default=200)
    given = parser.parse_args()
    with new_folder("rune-peer-") as folder:
        run_on_uvloop(measure(given.backend, given.chains, given.items, given.samples, folder))


if __name__ == "__main__":
    main()
