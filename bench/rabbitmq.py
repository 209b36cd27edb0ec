"""Measures a cluster with RabbitMQ as its queue, and compares it with a bare client in the same run.

    python bench/rabbitmq.py [--quick] [--quorum] [--statuses each|batched|none] [--only NAME ...]

    hops        the bare client: delivery, confirmed publish, ack; the limit of queued nodes
    travelling  chains of 10 effectful nodes, each sent as a message
    pure        chains of 10 pure nodes, each run in the process of its predecessor
    fan         a fan-out of 10,000 items
    latency     one node in an idle cluster, from start to completion
    burst       10,000 waits that are due in the same second
    backlog     100,000 messages published before a worker starts: throughput over time and memory of the worker

Each rate comes with the CPU time in µs per counted unit and kind of process, which is more reliable than the rate on a
machine with other load.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import statistics
import sys
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path

# Remove this folder: its file names shadow standard library modules.
sys.path.pop(0)
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from bench.cluster_load import (
    CLUSTER_JOBS,
    Figure,
    burst,
    chained,
    fanned,
    listed,
    new_folder,
    one_by_one,
    run_job,
)
from bench.cluster_stores import running
from bench.rabbitmq_backlog import drain
from bench.rabbitmq_hops import MESSAGES, hops
from bench.rabbitmq_stores import Brokered, Statuses
from rune.cli.bench.workloads import percentile
from rune.cli.commands.serve import run_on_uvloop
from tests.support.services.rabbitmq import new_broker


async def bare(stores: Brokered, scale: float) -> Figure:
    count = max(5_000, int(60_000 * scale))
    runs = [await hops(stores.broker.url(), count, MESSAGES, stores.quorum) for _ in range(3)]
    alone, _ = await hops(stores.broker.url(), 500, 1, stores.quorum)
    stores.bare = statistics.median(rate for rate, _ in runs)
    return Figure(
        name="hops",
        measured=stores.bare,
        unit="hops/s",
        goal="the limit",
        met=True,
        cpu={"client": statistics.median(cost for _, cost in runs)},
        notes={"one_by_one_ms": 1000 / alone},
    )


async def chains(stores: Brokered, scale: float, *, effectful: bool) -> Figure:
    async with running(stores) as bench:
        load = await chained(bench, scale, effectful=effectful)
        await bench.audited(load.nodes, load.nodes if effectful else 0)
    share = load.rate / stores.bare if effectful and stores.bare else 0.0
    least = 3_000 if effectful else 10_000
    return Figure(
        name="travelling" if effectful else "pure",
        measured=load.rate,
        unit="nodes/s",
        goal=f">= {least:,}{', 25 % of hops' if effectful else ''}",
        met=load.rate >= least and (not effectful or share >= 0.25),
        cpu=load.cpu,
        notes={
            "p50_ms": percentile(load.took, 0.5),
            "p99_ms": percentile(load.took, 0.99),
            **({"of_hops": share} if share else {}),
        },
    )


async def fan(stores: Brokered, scale: float) -> Figure:
    async with running(stores) as bench:
        load = await fanned(bench, scale)
        await bench.audited(load.nodes, 0)
    return Figure(
        name="fan",
        measured=load.rate,
        unit="items/s",
        goal=">= 2,000",
        met=load.rate >= 2_000,
        cpu=load.cpu,
    )


async def latency(stores: Brokered, scale: float) -> Figure:
    async with running(stores) as bench:
        load = await one_by_one(bench, scale)
    p50 = percentile(load.took, 0.5)
    return Figure(
        name="latency",
        measured=p50,
        unit="ms p50",
        goal="<= 15",
        met=p50 <= 15,
        cpu=load.cpu,
        notes={"p99_ms": percentile(load.took, 0.99)},
    )


async def backlog(stores: Brokered, scale: float) -> Figure:
    count = max(5_000, int(100_000 * scale))
    seen = await drain(stores, count)
    return Figure(
        name="backlog",
        measured=seen.steady,
        unit="of its first",
        goal=">= 0.7, memory flat",
        met=seen.steady >= 0.7 and seen.growth <= 1.15,
        notes={
            "messages": count,
            "per_second": ", ".join(f"{each:,.0f}" for each in seen.rates),
            "worker_mb": ", ".join(f"{each:.0f}" for each in seen.memory),
            "most_waiting": seen.most,
        },
    )


Measure = Callable[[Brokered, float], Awaitable[Figure]]
MEASURES: dict[str, Measure] = {
    "hops": bare,
    "travelling": lambda stores, scale: chains(stores, scale, effectful=True),
    "pure": lambda stores, scale: chains(stores, scale, effectful=False),
    "fan": fan,
    "latency": latency,
    "burst": burst,
    "backlog": backlog,
    **{name: partial(run_job, name=name) for name in CLUSTER_JOBS},
}


def format_figure(figure: Figure) -> str:
    cpu, notes = listed(figure.cpu, 0), listed(figure.notes, 2)
    met = "met" if figure.met else "missed"
    line = f"{figure.name:12} {figure.measured:10,.1f} {figure.unit:13} goal {figure.goal:24} {met}"
    return "\n    ".join(each for each in (line, f"cpu µs: {cpu}" if cpu else "", notes) if each)


async def measure(names: Sequence[str], scale: float, *, quorum: bool, statuses: Statuses) -> int:
    figures = []
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(new_folder("rune-rabbit-bench-"))
        broker = await asyncio.to_thread(new_broker)
        stack.callback(broker.stop)
        stores = Brokered(folder, broker, quorum=quorum, statuses=statuses)
        stack.callback(stores.stop)
        for name in names:
            figures.append(await MEASURES[name](stores, scale))
            print(format_figure(figures[-1]), flush=True)
    return 0 if all(each.met for each in figures) else 1


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="run a tenth of each load")
    parser.add_argument("--quorum", action="store_true", help="use quorum queues")
    parser.add_argument("--statuses", choices=("each", "batched", "none"), default="each")
    parser.add_argument("--only", nargs="+", choices=sorted(MEASURES), default=list(MEASURES))
    given = parser.parse_args()
    scale = 0.1 if given.quick else 1.0
    return run_on_uvloop(measure(given.only, scale, quorum=given.quorum, statuses=given.statuses))


if __name__ == "__main__":
    sys.exit(main())
