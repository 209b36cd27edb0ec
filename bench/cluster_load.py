"""The loads that `bench/cluster.py` and `bench/rabbitmq.py` put on a cluster, and how a figure is said."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec

from bench.cluster_stores import Bench, Taken
from rune.bench import workloads
from rune.bench.measures import completed

AT_ONCE = 400  # executions under way


class Figure(msgspec.Struct, kw_only=True):
    """One line of the table. `cpu`: µs of each kind of process for one of what is counted."""

    name: str
    measured: float
    unit: str
    goal: str
    met: bool
    limit: float | None = None
    cpu: dict[str, float] = {}
    notes: dict[str, float | str] = {}


class Load(NamedTuple):
    """So many of what is counted, and the ms of each execution. `nodes`: all that have run, the warm-up's too."""

    count: int
    taken: Taken
    took: list[float]
    nodes: int

    @property
    def rate(self) -> float:
        return self.count / self.taken.seconds

    @property
    def cpu(self) -> dict[str, float]:
        return self.taken.each(self.count)


async def chained(bench: Bench, scale: float, *, effectful: bool) -> Load:
    """10-node chains, so many at once; counted are the nodes."""
    count = max(400, int((2_000 if effectful else 6_000) * scale))
    plan = workloads.chain(10, bench.catalogue, effectful=effectful)
    await completed(bench.engine, plan, [b"{}"] * AT_ONCE * 2, AT_ONCE)
    async with bench.measured() as taken:
        took = await completed(bench.engine, plan, [b'{"x": 1}'] * count, AT_ONCE)
    return Load(count * 10, taken, took, (count + AT_ONCE * 2) * 10)


async def fanned(bench: Bench, scale: float) -> Load:
    """10,000 items: split, a node each, aggregator; counted are the items."""
    items = max(1_000, int(10_000 * scale))
    plan = workloads.fan(items, bench.catalogue)
    await completed(bench.engine, plan, [b'{"xs": [1, 2, 3]}'], 1)
    payload = msgspec.json.encode({"xs": list(range(items))})
    async with bench.measured() as taken:
        took = await completed(bench.engine, plan, [payload], 1)
    return Load(items, taken, took, items + 3 + 2 * 3)


async def one_by_one(bench: Bench, scale: float) -> Load:
    """One node, nothing else going on: start to completed, as whoever started it sees it."""
    count = max(50, int(300 * scale))
    plan = workloads.chain(1, bench.catalogue, effectful=False)
    await completed(bench.engine, plan, [b"{}"] * 20, 1)
    async with bench.measured() as taken:
        took = await completed(bench.engine, plan, [b'{"x": 1}'] * count, 1)
    return Load(count, taken, took, count + 20)


def listed(values: Mapping[str, float | str], decimals: int) -> str:
    """Each value behind its name."""
    return ", ".join(
        f"{name} {each:,.{decimals}f}" if isinstance(each, float) else f"{name} {each}"
        for name, each in values.items()
    )


@contextmanager
def new_folder(prefix: str) -> Iterator[Path]:
    """For the stores of a run; it is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix=prefix) as folder:
        os.chmod(folder, 0o755)  # the database runs as somebody else
        yield Path(folder)
