"""Rune: the same jobs with effectful nodes, so that every step is claimed, recorded and queued separately.

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
from bench.cluster_stores import Stores, running
from bench.peers.figures import CHAIN_STEPS, CONCURRENCY, WARM_UP, report
from bench.rabbitmq_stores import Brokered
from rune.bootstrap.sqlite import running_engine
from rune.cli.bench import workloads
from rune.cli.bench.workloads import completed
from rune.cli.commands.serve import run_on_uvloop
from rune.runtime.engine import Engine
from rune.settings import Settings
from tests.support.services.rabbitmq import new_broker


@asynccontextmanager
async def engine_on(backend: str, folder: Path) -> AsyncIterator[Engine]:
    """Yield an engine on new stores."""
    async with AsyncExitStack() as stack:
        if backend == "embedded":
            yield await stack.enter_async_context(running_engine(Settings(home=str(folder / "home"))))
            return
        stores = Stores(folder) if backend == "redis" else _with_broker(folder)
        stack.callback(stores.stop)
        bench = await stack.enter_async_context(running(stores))
        yield bench.engine


def _with_broker(folder: Path) -> Stores:
    return Brokered(folder, new_broker(), quorum=False, statuses="each")


async def measure(backend: str, chains: int, items: int, samples: int, folder: Path) -> None:
    async with engine_on(backend, folder) as engine:
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
        plan = workloads.fan(items, catalogue, effectful=True)
        await completed(engine, plan, [b'{"xs": [1, 2, 3]}'], 1)
        payload = msgspec.json.encode({"xs": list(range(items))})
        began = time.perf_counter()
        await completed(engine, plan, [payload], 1)
        report("fan", items / (time.perf_counter() - began), "items/s")


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
