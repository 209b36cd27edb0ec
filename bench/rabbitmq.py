"""What a cluster does with RabbitMQ between its processes, beside the bare client in the same run.

    python bench/rabbitmq.py [--quick] [--quorum] [--statuses each|batched|none] [--only NAME ...]

    hops        the bare client: deliver, confirmed publish, ack; the limit of what travels
    travelling  chains of 10 nodes with an effect: every one is a message
    pure        chains of 10 nodes without: run where their predecessors did
    fan         10,000 items
    latency     one node while nothing else goes on, start to completed
    backlog     100,000 messages that wait for a worker: how evenly they go, and what the worker's memory does

Processor time is given beside each rate, in µs of each kind of process for one of what is counted: on a machine that is
busy otherwise it says more than the rate.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import statistics
import sys
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

sys.path.pop(0)  # this folder: its names hide those of the library
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

import msgspec

from bench.rabbitmq_backlog import drained
from bench.rabbitmq_hops import TOKENS, hops
from bench.rabbitmq_stores import Brokered, Statuses, running
from rune.bench import documents
from rune.bench.load import completed
from rune.bench.report import percentile
from rune.cli.serving import quick_loop
from tests.services.rabbitmq import new_broker

AT_ONCE = 400  # executions under way


class Figure(msgspec.Struct, kw_only=True):
    """One line of the table. `cpu`: µs of each kind of process for one of what is counted."""

    name: str
    measured: float
    unit: str
    goal: str
    met: bool
    cpu: dict[str, float] = {}
    notes: dict[str, float | str] = {}


async def bare(stores: Brokered, scale: float) -> Figure:
    count = max(5_000, int(60_000 * scale))
    runs = [await hops(stores.broker.url(), count, TOKENS, stores.quorum) for _ in range(3)]
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
    count = max(400, int((2_000 if effectful else 6_000) * scale))
    async with running(stores) as bench:
        plan = documents.chain(10, bench.catalogue, effectful=effectful)
        await completed(bench.engine, plan, [b"{}"] * AT_ONCE * 2, AT_ONCE)
        async with bench.measured() as taken:
            took = await completed(bench.engine, plan, [b'{"x": 1}'] * count, AT_ONCE)
        every = (count + AT_ONCE * 2) * 10
        await bench.audited(every, every if effectful else 0)
    rate = count * 10 / taken.seconds
    share = rate / stores.bare if effectful and stores.bare else 0.0
    least = 3_000 if effectful else 10_000
    return Figure(
        name="travelling" if effectful else "pure",
        measured=rate,
        unit="nodes/s",
        goal=f">= {least:,}{', 25 % of hops' if effectful else ''}",
        met=rate >= least and (not effectful or share >= 0.25),
        cpu=taken.each(count * 10),
        notes={
            "p50_ms": percentile(took, 0.5),
            "p99_ms": percentile(took, 0.99),
            **({"of_hops": share} if share else {}),
        },
    )


async def fan(stores: Brokered, scale: float) -> Figure:
    items = max(1_000, int(10_000 * scale))
    async with running(stores) as bench:
        plan = documents.fan(items, bench.catalogue)
        await completed(bench.engine, plan, [b'{"xs": [1, 2, 3]}'], 1)
        payload = msgspec.json.encode({"xs": list(range(items))})
        async with bench.measured() as taken:
            await completed(bench.engine, plan, [payload], 1)
        await bench.audited(items + 3 + 2 * 3, 0)
    rate = items / taken.seconds
    return Figure(
        name="fan",
        measured=rate,
        unit="items/s",
        goal=">= 2,000",
        met=rate >= 2_000,
        cpu=taken.each(items),
    )


async def latency(stores: Brokered, scale: float) -> Figure:
    count = max(50, int(300 * scale))
    async with running(stores) as bench:
        plan = documents.chain(1, bench.catalogue, effectful=False)
        await completed(bench.engine, plan, [b"{}"] * 20, 1)
        async with bench.measured() as taken:
            took = await completed(bench.engine, plan, [b'{"x": 1}'] * count, 1)
    p50 = percentile(took, 0.5)
    return Figure(
        name="latency",
        measured=p50,
        unit="ms p50",
        goal="<= 15",
        met=p50 <= 15,
        cpu=taken.each(count),
        notes={"p99_ms": percentile(took, 0.99)},
    )


async def backlog(stores: Brokered, scale: float) -> Figure:
    count = max(5_000, int(100_000 * scale))
    seen = await drained(stores, count)
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
    "backlog": backlog,
}


def shown(figure: Figure) -> str:
    cpu = ", ".join(f"{name} {each:,.0f}" for name, each in figure.cpu.items())
    notes = ", ".join(
        f"{name} {each:,.2f}" if isinstance(each, float) else f"{name} {each}"
        for name, each in figure.notes.items()
    )
    met = "met" if figure.met else "missed"
    line = f"{figure.name:12} {figure.measured:10,.1f} {figure.unit:13} goal {figure.goal:24} {met}"
    return "\n    ".join(each for each in (line, f"cpu µs: {cpu}" if cpu else "", notes) if each)


async def measure(names: Sequence[str], scale: float, *, quorum: bool, statuses: Statuses) -> int:
    figures = []
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rune-rabbit-bench-")))
        os.chmod(folder, 0o755)  # the database runs as somebody else
        broker = await asyncio.to_thread(new_broker)
        stack.callback(broker.stop)
        stores = Brokered(folder, broker, quorum=quorum, statuses=statuses)
        stack.callback(stores.stop)
        for name in names:
            figures.append(await MEASURES[name](stores, scale))
            print(shown(figures[-1]), flush=True)
    return 0 if all(each.met for each in figures) else 1


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a tenth of everything")
    parser.add_argument("--quorum", action="store_true", help="with replicated queues")
    parser.add_argument("--statuses", choices=("each", "batched", "none"), default="each")
    parser.add_argument("--only", nargs="+", choices=sorted(MEASURES), default=list(MEASURES))
    given = parser.parse_args()
    scale = 0.1 if given.quick else 1.0
    return quick_loop(measure(given.only, scale, quorum=given.quorum, statuses=given.statuses))


if __name__ == "__main__":
    sys.exit(main())
