"""Measures one execution at a time on an idle cluster: how long it takes, and which round trips it makes.

    python bench/idle.py [--queue redis|rabbitmq] [--steps 1 3] [--count 300] [--http | --trips] [--json]

An execution is a chain of nodes with effects, started by a process without a role and run by a worker process. With
`--http` a request to an API process starts it and waits for its end. With `--trips` starter and worker are
two engines of this process, and every call to a server is counted.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

# Remove this folder: its file names shadow standard library modules.
sys.path.pop(0)
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

import aiohttp
import msgspec

from bench.cluster_load import new_folder
from bench.cluster_stores import NO_ROLES, Bench, Stores, running
from bench.rabbitmq_stores import Brokered
from rune.bootstrap import cluster
from rune.cli.bench import workloads
from rune.cli.bench.measures import start_and_wait
from rune.cli.bench.workloads import completed, percentile
from rune.cli.commands.serve import run_on_uvloop
from rune.core.definition.model import canonical
from rune.core.plan.model import Plan
from rune.telemetry.logs import LOG_CONTEXT
from tests.support.server_calls import counted_calls
from tests.support.services.rabbitmq import new_broker

WARM_UP = 40


class Latency(msgspec.Struct, kw_only=True):
    """Times of executions with so many steps, in ms, and CPU time of each execution by process, in µs."""

    queue: str
    steps: int
    p50_ms: float
    p99_ms: float
    cpu: dict[str, float]


Run = Callable[[Plan, int], Awaitable[list[float]]]
"""Runs so many executions of a plan one after the other and returns the ms that each took."""


@asynccontextmanager
async def caller(bench: Bench, *, http: bool) -> AsyncIterator[Run]:
    """Yield what starts executions and waits for them, in this process or over HTTP."""
    if not http:
        yield lambda plan, count: completed(bench.engine, plan, [b'{"x": 1}'] * count, 1)
        return
    api = await asyncio.to_thread(bench.workers.api)
    async with aiohttp.ClientSession(api.url) as session:

        async def run(plan: Plan, count: int) -> list[float]:
            await bench.engine.services.workflows.deploy(canonical(plan.definition))
            return await start_and_wait(session, plan.definition.id, count)

        yield run


async def latency(
    stores: Stores, queue: str, steps: Sequence[int], count: int, *, http: bool
) -> list[Latency]:
    found = []
    async with running(stores) as bench, caller(bench, http=http) as run:
        for number in steps:
            plan = workloads.chain(number, bench.catalogue, effectful=True)
            await run(plan, WARM_UP)
            async with bench.measured() as usage:
                took = await run(plan, count)
            found.append(
                Latency(
                    queue=queue,
                    steps=number,
                    p50_ms=percentile(took, 0.5),
                    p99_ms=percentile(took, 0.99),
                    cpu=usage.cpu_us_per_unit(count),
                )
            )
    return found


class Trips:
    """Counts calls to servers by process and name, and records the order of the last execution."""

    def __init__(self) -> None:
        self.worker = ""
        self.counts: Counter[tuple[str, str, str]] = Counter()
        self.order: list[tuple[float, str, str, str]] = []

    def add(self, server: str, what: str) -> None:
        process = "worker" if LOG_CONTEXT.get()[0] == self.worker else "starter"
        self.counts[(process, server, what)] += 1
        self.order.append((time.perf_counter(), process, server, what))

    def reset(self) -> None:
        self.counts.clear()
        self.order.clear()


async def trips(stores: Stores, steps: Sequence[int], count: int) -> None:
    settings = await stores.fresh()
    seen = Trips()
    with counted_calls(seen.add):
        async with (
            cluster.running_engine(settings, roles=frozenset({"worker"})) as worker,
            cluster.running_engine(settings, roles=NO_ROLES) as starter,
        ):
            seen.worker = worker.name
            for number in steps:
                plan = workloads.chain(number, starter.registry.catalogue, effectful=True)
                await completed(starter, plan, [b"{}"] * WARM_UP, 1)
                seen.reset()
                await completed(starter, plan, [b"{}"] * count, 1)
                print(f"\n{number} steps: calls per execution")
                for (process, server, what), calls in sorted(seen.counts.items()):
                    print(f"  {process:8} {server:9} {what:24} {calls / count:6.2f}")
                seen.reset()
                await completed(starter, plan, [b"{}"], 1)
                began = seen.order[0][0]
                for at, process, server, what in seen.order:
                    print(f"    {(at - began) * 1000:7.2f} ms  {process:8} {server:9} {what}")


async def measure(given: argparse.Namespace) -> int:
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(new_folder("rune-idle-"))
        if given.queue == "rabbitmq":
            broker = await asyncio.to_thread(new_broker)
            stack.callback(broker.stop)
            stores: Stores = Brokered(folder, broker, quorum=False, statuses="each")
        else:
            stores = Stores(folder)
        stack.callback(stores.stop)
        if given.trips:
            await trips(stores, given.steps, given.count)
            return 0
        found = await latency(stores, given.queue, given.steps, given.count, http=given.http)
    if given.json:
        print(msgspec.json.encode(found).decode())
        return 0
    for each in found:
        cpu = ", ".join(f"{name} {used:,.0f}" for name, used in each.cpu.items())
        print(
            f"{each.queue} {each.steps} steps: p50 {each.p50_ms:.2f} ms, p99 {each.p99_ms:.2f} ms; cpu µs: {cpu}"
        )
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--queue", choices=["redis", "rabbitmq"], default="redis")
    parser.add_argument("--steps", nargs="+", type=int, default=[1, 3])
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument(
        "--http", action="store_true", help="start and wait over HTTP, through an API process"
    )
    parser.add_argument("--trips", action="store_true", help="count the calls to servers")
    parser.add_argument("--json", action="store_true", help="print JSON")
    return run_on_uvloop(measure(parser.parse_args()))


if __name__ == "__main__":
    sys.exit(main())
