"""Measures a cluster of real worker processes with new stores, and compares it with a bare client in the same run.

    python bench/cluster.py [--quick] [--json] [--only NAME ...]

The load comes from a process without a role, which starts executions through the public interface and waits for their
ends. Only completed executions are counted, and all are verified afterwards. The limit is a client without an engine
that inserts the same rows in the same groups and runs as many small scripts.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import sys
import time
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from pathlib import Path
from typing import Any

# Remove this folder: its file names shadow standard library modules.
sys.path.pop(0)
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

import msgspec

from bench.cluster_load import (
    CLUSTER_JOBS,
    CONCURRENCY,
    Figure,
    arm,
    burst,
    chained,
    fanned,
    listed,
    new_folder,
    one_by_one,
    run_job,
)
from bench.cluster_stores import Stores, limit, running, slowest
from rune.adapters.redis.client import Client, info
from rune.adapters.redis.encoding import KeySpace
from rune.cli.bench import workloads
from rune.cli.bench.measures import MAX_FAIR_RATIO
from rune.cli.bench.workloads import completed, percentile
from rune.cli.commands.serve import run_on_uvloop
from rune.core.plan.model import Plan
from rune.runtime.engine import Engine
from rune.settings import Settings


async def chains(stores: Stores, scale: float, *, effectful: bool, workers: int = 1) -> Figure:
    """10-node chains, 400 concurrent."""
    goal = 4_000 if effectful else 12_000
    async with running(stores, workers=workers) as bench:
        load = await chained(bench, scale, effectful=effectful)
        slow = await slowest(stores)
        await bench.audited(load.nodes, load.nodes if effectful else 0)
        if effectful:
            bare = await limit(bench.settings, nodes=load.units, group=CONCURRENCY, claims=True, scripts=2)
        else:
            bare = await limit(
                bench.settings, nodes=load.units, group=CONCURRENCY * 10, claims=False, scripts=0.4
            )
    name = f"chain-{'effectful' if effectful else 'pure'}{'' if workers == 1 else f', {workers} workers'}"
    return Figure(
        name=name,
        measured=load.rate,
        unit="nodes/s",
        goal=f">= {goal:,}",
        met=load.rate >= goal,
        limit=bare,
        cpu=load.cpu,
        notes={
            "p50_ms": percentile(load.took, 0.5),
            "p99_ms": percentile(load.took, 0.99),
            **slow,
            **{f"{name}_per_node": f"{each:.3f}" for name, each in load.calls.items()},
        },
    )


async def fan(stores: Stores, scale: float) -> Figure:
    """A fan-out of 10,000 items: split, one node each, aggregator."""
    async with running(stores) as bench:
        load = await fanned(bench, scale)
        slow = await slowest(stores)
        await bench.audited(load.nodes, 0)
        bare = await limit(bench.settings, nodes=load.units, group=256, claims=False, scripts=2)
    return Figure(
        name="fan-10k",
        measured=load.rate,
        unit="items/s",
        goal=">= 3,000",
        met=load.rate >= 3_000,
        limit=bare,
        cpu=load.cpu,
        notes=slow,
    )


async def latency(stores: Stores, scale: float) -> Figure:
    """Latency of one node in an idle cluster, from start to completion, as seen by the client."""
    async with running(stores) as bench:
        load = await one_by_one(bench, scale)
        slow = await slowest(stores)
        await bench.audited(load.nodes, 0)
        commit = 1000 / await limit(bench.settings, nodes=100, group=1, claims=False, scripts=4)
    p50 = percentile(load.took, 0.5)
    return Figure(
        name="latency-1",
        measured=p50,
        unit="ms p50",
        goal="<= 10",
        met=p50 <= 10,
        limit=commit * 2,
        cpu=load.cpu,
        notes={"p99_ms": percentile(load.took, 0.99), **slow},
    )


async def fair_share(stores: Stores, scale: float) -> Figure:
    """Sequential one-node executions: alone, then during a fan-out of 100,000 items on the same worker."""
    items, count = max(2_000, int(100_000 * scale)), max(100, int(500 * scale))
    async with running(stores) as bench:
        small = workloads.chain(1, bench.catalogue, effectful=True)
        big = workloads.fan(bench.catalogue, effectful=True)
        await completed(bench.engine, small, [b"{}"] * 20, 1)
        alone = await completed(bench.engine, small, [b"{}"] * count, 1)
        payload = msgspec.json.encode({"xs": list(range(items))})
        beside: list[float] = []
        async with bench.measured() as usage:
            fan_out = asyncio.create_task(completed(bench.engine, big, [payload], 1))
            while not fan_out.done():
                beside += await completed(bench.engine, small, [b"{}"], 1)
            await fan_out
        slow = await slowest(stores)
        ran = 20 + count + len(beside)
        await bench.audited(ran + items + 3, ran + items)
    quiet, busy = percentile(alone, 0.99), percentile(beside, 0.99)
    return Figure(
        name="fair-share",
        measured=busy / quiet,
        unit="x p99 alone",
        goal=f"<= {MAX_FAIR_RATIO:g}",
        met=busy <= MAX_FAIR_RATIO * quiet,
        cpu=usage.cpu_us_per_unit(items),
        notes={
            "p99_alone_ms": quiet,
            "p99_beside_ms": busy,
            "p50_alone_ms": percentile(alone, 0.5),
            "p50_beside_ms": percentile(beside, 0.5),
            "max_beside_ms": max(beside),
            "beside": len(beside),
            "items_per_s": items / usage.seconds,
            "load": os.getloadavg()[0],
            **slow,
        },
    )


async def idle(stores: Stores, scale: float) -> Figure:
    """The CPU share of an idle worker and an idle scheduler."""
    async with running(stores) as bench:
        plan = workloads.chain(1, bench.catalogue, effectful=False)
        await completed(bench.engine, plan, [b"{}"] * 20, 1)
        async with bench.measured() as usage:
            await asyncio.sleep(10)
    shares = {name: used / usage.seconds * 100 for name, used in usage.cpu.items()}
    worst = max(shares["worker"], shares["scheduler"])
    rounded = {name: round(share, 2) for name, share in shares.items()}
    return Figure(
        name="idle", measured=worst, unit="% of a core", goal="<= 1", met=worst <= 1, notes=dict(rounded)
    )


async def timers(stores: Stores, scale: float) -> Figure:
    """Timers: a million executions wait for years in Redis; then 1,000 others per second become due."""
    waiting, woken = int(1_000_000 * min(1.0, scale)), max(2_000, int(10_000 * scale))
    async with running(stores) as bench:
        client = Client(stores.redis.url)
        plan = workloads.waiting(bench.catalogue)
        far = [msgspec.json.encode({"when": "2099-01-01T00:00:00Z"})] * 1_000
        empty = await _memory(client)
        await _start_all(bench.engine, plan, far)
        await _wait_evicted(client, bench.settings, len(far))
        used = await _memory(client) - empty
        await _fill(client, bench.settings, waiting - len(far))
        full = await _memory(client) - empty
        soon = time.time() + woken / 300 + 5
        late: list[float] = []
        async with asyncio.TaskGroup() as group:
            await arm(bench.engine, plan, [soon + i / 1_000 for i in range(woken)], late, group)
            assert time.time() < soon, "starting the executions took too long"
            await asyncio.sleep(soon - time.time())
            before = stores.processes(bench.workers)
        after = stores.processes(bench.workers)
        slow = await slowest(stores)
        await client.close()
    p99, mb = percentile(late, 0.99), full / 1e6 * 1_000_000 / waiting
    notes: dict[str, float | str] = {
        "p50_ms": percentile(late, 0.5),
        "mb_of_a_million": mb,
        "bytes_each": used / len(far),
        "waiting": waiting,
        "woken": woken,
        **slow,
    }
    return Figure(
        name="timers",
        measured=p99,
        unit="ms late, p99",
        goal="<= 250, <= 700 MB",
        met=p99 <= 250 and mb <= 700,
        cpu={name: round((after[name] - before[name]) / woken * 1e6, 1) for name in before},
        notes=notes,
    )


async def _memory(client: Client) -> int:
    return int(info(await client.call("INFO", "memory"))["used_memory"])


async def _start_all(engine: Engine, plan: Plan, payloads: Sequence[bytes]) -> None:
    waiting = iter(payloads)

    async def lane() -> None:
        for payload in waiting:
            await engine.launcher.start(engine.launcher.new_record(plan, payload), plan, new_id=True)

    await asyncio.gather(*(lane() for _ in range(CONCURRENCY)))


async def _wait_evicted(client: Client, settings: Settings, count: int) -> None:
    """Wait until only the due times of the executions are left in Redis."""
    keys = KeySpace(settings.prefix)
    while True:
        due = [int(await client.call("ZCARD", keys.due(each))) for each in range(keys.partitions)]
        fields = await client.call("KEYS", f"{settings.prefix}:*:x:*")
        if sum(due) == count and not fields:
            return
        await asyncio.sleep(0.05)


async def _fill(client: Client, settings: Settings, count: int) -> None:
    """Add the due times of further waiting executions directly."""
    keys = KeySpace(settings.prefix)
    years = int((time.time() + 3e9) * 1000)
    for start in range(0, count, 10_000):
        pairs: dict[str, list[str | int]] = {}
        for number in range(start, min(start + 10_000, count)):
            execution = f"x{years:012x}{0:08x}{number:06x}"
            pairs.setdefault(keys.due(keys.partition(execution)), []).extend((years + number, execution))
        await asyncio.gather(*(client.call("ZADD", key, *each) for key, each in pairs.items()))


Measure = Callable[[Stores, float], Coroutine[Any, Any, Figure]]
MEASURES: dict[str, Measure] = {
    "chain-effectful": lambda stores, scale: chains(stores, scale, effectful=True),
    "chain-effectful-2": lambda stores, scale: chains(stores, scale, effectful=True, workers=2),
    "chain-effectful-4": lambda stores, scale: chains(stores, scale, effectful=True, workers=4),
    "chain-pure": lambda stores, scale: chains(stores, scale, effectful=False),
    "chain-pure-2": lambda stores, scale: chains(stores, scale, effectful=False, workers=2),
    "fan-10k": fan,
    "latency-1": latency,
    "fair-share": fair_share,
    "idle": idle,
    "timers": timers,
    "burst": burst,
    **{name: partial(run_job, name=name) for name in CLUSTER_JOBS},
}


def format_figure(figure: Figure) -> str:
    bare = "" if figure.limit is None else f"{figure.limit:,.1f}"
    met = "met" if figure.met else "missed"
    line = f"{figure.name:28} {figure.measured:10,.1f} {figure.unit:13} limit {bare:>10}"
    line += f"  goal {figure.goal:18} {met}"
    return f"{line}\n    cpu µs: {listed(figure.cpu, 0)}\n    {listed(figure.notes, 1)}"


def compare(figures: Sequence[Figure], name: str) -> None:
    """Set the goal of a measure with several workers relative to one worker in the same run: the rate of two, the CPU
    time per node of four, which compete for the cores of a small machine."""
    base, _, workers = name.rpartition("-")
    one = next((each for each in figures if each.name == base), None)
    if one is None or workers not in {"2", "4"}:
        return
    figure = figures[-1]
    rate, cpu = figure.measured / one.measured, engine_cpu(figure) / engine_cpu(one)
    figure.notes |= {"times_one_worker": rate, "cpu_times_one_worker": round(cpu, 2)}
    if workers == "2":
        figure.goal, figure.met = ">= 1.6 x one", rate >= 1.6
    else:
        figure.goal, figure.met = "CPU <= 1.15 x one", cpu <= 1.15


def engine_cpu(figure: Figure) -> float:
    """Return the CPU time per node without that of the process that starts the executions."""
    return sum(used for kind, used in figure.cpu.items() if kind != "load")


async def measure(names: Sequence[str], scale: float, *, as_json: bool) -> int:
    figures = []
    with contextlib.ExitStack() as stack:
        stores = Stores(stack.enter_context(new_folder("rune-cluster-")))
        stack.callback(stores.stop)
        for name in names:
            figures.append(await MEASURES[name](stores, scale))
            compare(figures, name)
            if not as_json:
                print(format_figure(figures[-1]), flush=True)
    if as_json:
        print(msgspec.json.encode(figures).decode())
    return 0 if all(each.met for each in figures) else 1


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="run a tenth of each load")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--only", nargs="+", choices=sorted(MEASURES), default=list(MEASURES))
    given = parser.parse_args()
    return run_on_uvloop(measure(given.only, 0.1 if given.quick else 1.0, as_json=given.json))


if __name__ == "__main__":
    sys.exit(main())
