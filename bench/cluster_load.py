"""The loads of `bench/cluster.py` and `bench/rabbitmq.py`, and the formatting of their results."""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from bench.cluster_stores import Bench, Stores, Usage, limit, running, slowest
from rune.bootstrap import cluster
from rune.cli.bench import workloads
from rune.cli.bench.jobs import JOBS
from rune.cli.bench.place import EnginePlace
from rune.cli.bench.workloads import completed, percentile
from rune.core.plan.model import Plan
from rune.ports.state import DueTimer
from rune.runtime.engine import Engine

CONCURRENCY = 400


class Figure(msgspec.Struct, kw_only=True):
    """One result. `cpu` is the CPU time in µs per counted unit, by kind of process."""

    name: str
    measured: float
    unit: str
    goal: str
    met: bool
    limit: float | None = None
    cpu: dict[str, float] = {}
    notes: dict[str, float | str] = {}


class Load(NamedTuple):
    """A finished load: counted units, resource usage and the ms of each execution. `nodes` includes the warm-up;
    `calls` are calls of the stores per unit, if they were counted."""

    units: int
    usage: Usage
    took: list[float]
    nodes: int
    calls: Mapping[str, float] = {}

    @property
    def rate(self) -> float:
        return self.units / self.usage.seconds

    @property
    def cpu(self) -> dict[str, float]:
        return self.usage.cpu_us_per_unit(self.units)


async def chained(bench: Bench, scale: float, *, effectful: bool) -> Load:
    """Run concurrent 10-node chains; the unit is a node."""
    count = max(400, int((2_000 if effectful else 6_000) * scale))
    plan = workloads.chain(10, bench.catalogue, effectful=effectful)
    await completed(bench.engine, plan, [b"{}"] * CONCURRENCY * 2, CONCURRENCY)
    before = await bench.traffic()
    async with bench.measured() as usage:
        took = await completed(bench.engine, plan, [b'{"x": 1}'] * count, CONCURRENCY)
    calls = {name: (each - before[name]) / (count * 10) for name, each in (await bench.traffic()).items()}
    return Load(count * 10, usage, took, (count + CONCURRENCY * 2) * 10, calls)


async def fanned(bench: Bench, scale: float) -> Load:
    """Run a fan-out of 10,000 items: split, one node each, aggregator; the unit is an item."""
    items = max(1_000, int(10_000 * scale))
    plan = workloads.fan(bench.catalogue)
    await completed(bench.engine, plan, [b'{"xs": [1, 2, 3]}'], 1)
    payload = msgspec.json.encode({"xs": list(range(items))})
    async with bench.measured() as usage:
        took = await completed(bench.engine, plan, [payload], 1)
    return Load(items, usage, took, items + 3 + 2 * 3)


async def one_by_one(bench: Bench, scale: float) -> Load:
    """Run one-node executions one after the other; the unit is an execution, timed by its client."""
    count = max(50, int(300 * scale))
    plan = workloads.chain(1, bench.catalogue, effectful=False)
    await completed(bench.engine, plan, [b"{}"] * 20, 1)
    async with bench.measured() as usage:
        took = await completed(bench.engine, plan, [b'{"x": 1}'] * count, 1)
    return Load(count, usage, took, count + 20)


CLUSTER_JOBS = (
    "chain-async",
    "chain-def",
    "fan-effect-10k",
    "fan-effect-100k",
    "nested-effect",
    "one-node",
    "api-starts",
    "webhook-retry",
)
"""The jobs of `rune bench` that differ from the loads here. Armed waits are part of `timers`."""


async def run_job(stores: Stores, scale: float, *, name: str) -> Figure:
    """Run a job of `rune bench`, verify its executions, and measure a client without an engine that writes its rows."""
    job = JOBS[name]
    async with running(stores) as bench:
        url = (await asyncio.to_thread(bench.workers.api)).url if job.serves else ""
        place = EnginePlace(bench.engine, url)
        warm = await job.load(place, job.warm_up, job.concurrency)
        async with bench.measured() as usage:
            done = await job.load(place, job.scaled(scale), job.concurrency)
        await bench.audited(warm.results + done.results)
        bare = await limit(bench.settings, nodes=done.units, group=job.per_commit, claims=True, scripts=2)
    notes: dict[str, float | str] = {"cpu_us": sum(usage.cpu_us_per_unit(done.units).values())}
    if done.took:
        notes |= {"p50_ms": percentile(done.took, 0.5), "p99_ms": percentile(done.took, 0.99)}
    return Figure(
        name=name,
        measured=done.units / usage.seconds,
        unit=f"{job.unit}/s",
        goal="none",
        met=True,
        limit=bare,
        cpu=usage.cpu_us_per_unit(done.units),
        notes=notes,
    )


async def arm(
    engine: Engine, plan: Plan, moments: Sequence[float], late: list[float], group: asyncio.TaskGroup
) -> None:
    """Start executions that wait until these times; tasks of the group record how late each ends, in ms."""
    waiting = iter(moments)

    async def one(moment: float, ending: asyncio.Future[Any]) -> None:
        await ending
        late.append((time.time() - moment) * 1000)

    async def lane() -> None:
        for moment in waiting:
            when = datetime.fromtimestamp(moment, UTC).isoformat()
            _, ending = await engine.start(plan, msgspec.json.encode({"when": when}))
            group.create_task(one(moment, ending))

    await asyncio.gather(*(lane() for _ in range(CONCURRENCY)))


async def burst(stores: Stores, scale: float) -> Figure:
    """10,000 waits that are due in the same second: how late their timers fire, and how late their executions end. The
    scheduler runs in this process, which counts what it fires."""
    count = max(1_000, int(10_000 * scale))
    async with (
        running(stores, workers=1, schedulers=0) as bench,
        cluster.running_engine(bench.settings, roles=frozenset({"scheduler"})) as scheduler,
    ):
        plan = workloads.waiting(bench.catalogue)
        late: list[float] = []
        fired: list[float] = []

        def timer_fired(due: DueTimer) -> None:
            if due.due is not None:
                fired.append(float(due.now - due.due))

        scheduler.instrumentation.timer_fired = timer_fired  # type: ignore[method-assign]
        soon = time.time() + count / 250 + 15
        async with asyncio.TaskGroup() as group:
            await arm(bench.engine, plan, [soon + i / count for i in range(count)], late, group)
            assert time.time() < soon - 5, "starting the executions took too long"
        slow = await slowest(stores)
    assert len(fired) == count, f"{len(fired)} timers fired"
    p99 = percentile(fired, 0.99)
    return Figure(
        name="burst",
        measured=p99,
        unit="ms late, p99",
        goal="<= 2,000",
        met=p99 <= 2_000,
        notes={
            "fired_p50_ms": percentile(fired, 0.5),
            "ended_p50_ms": percentile(late, 0.5),
            "ended_p99_ms": percentile(late, 0.99),
            "timers": count,
            "load": os.getloadavg()[0],
            **slow,
        },
    )


def listed(values: Mapping[str, float | str], decimals: int) -> str:
    """Format values, each after its name."""
    return ", ".join(
        f"{name} {each:,.{decimals}f}" if isinstance(each, float) else f"{name} {each}"
        for name, each in values.items()
    )


@contextmanager
def new_folder(prefix: str) -> Iterator[Path]:
    """Yield a temporary folder for the stores."""
    with tempfile.TemporaryDirectory(prefix=prefix) as folder:
        # The database server runs as another user.
        os.chmod(folder, 0o755)
        yield Path(folder)
