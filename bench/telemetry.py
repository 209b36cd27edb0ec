"""What it costs to count and to say where one is: CPU per node with it and without it.

    python bench/telemetry.py [TURNS]

One engine runs chains of ten nodes in short turns, with the counting in half of them taken out. What is compared is
the time on the CPU, and the median of the turns, so that a neighbour who is busy counts little.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
import time
from typing import Any

from rune.adapters.sqlite.queue import QueueAges
from rune.bench import workloads
from rune.bench.measures import completed
from rune.bootstrap import running_engine
from rune.runtime.worker import executor
from rune.settings import Settings
from rune.telemetry.counters import Counters

EXECUTIONS = 200
NODES = 10


class _Nowhere:
    def set(self, place: Any) -> None:
        """Nobody wants to know."""


def _nothing(*given: Any) -> None:
    """Is called, and that is all."""


PLACES: tuple[tuple[Any, str, Any], ...] = (
    (Counters, "ran", _nothing),
    (QueueAges, "mark", _nothing),
    (executor, "HERE", _Nowhere()),
    (executor, "now_ns", int),
)
BEFORE = [getattr(owner, name) for owner, name, _ in PLACES]


def counting(*, on: bool) -> None:
    """Put it in, or take it out."""
    for (owner, name, nothing), own in zip(PLACES, BEFORE, strict=True):
        setattr(owner, name, own if on else nothing)


async def measure(turns: int, *, effectful: bool) -> tuple[float, float]:
    """Microseconds on the CPU per node, with and without."""
    spent: dict[bool, list[float]] = {True: [], False: []}
    with tempfile.TemporaryDirectory(prefix="rune-bench-") as folder:
        async with running_engine(Settings(home=folder, durability="relaxed")) as engine:
            plan = workloads.chain(NODES, engine.registry.catalogue, effectful=effectful)
            await completed(engine, plan, [b"{}"] * EXECUTIONS, EXECUTIONS)
            for turn in range(2 * turns):
                on = turn % 4 in (0, 3)  # whatever returns with every other turn meets both alike
                counting(on=on)
                before = time.thread_time()
                await completed(engine, plan, [b'{"x": 1}'] * EXECUTIONS, EXECUTIONS)
                spent[on].append((time.thread_time() - before) / (EXECUTIONS * NODES) * 1e6)
            counting(on=True)
    return statistics.median(spent[True]), statistics.median(spent[False])


def main() -> None:
    """Nodes that are committed together, and nodes that each travel."""
    turns = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    for kind in ("pure", "effectful"):
        counted, bare = asyncio.run(measure(turns, effectful=kind == "effectful"))
        print(
            f"{kind}: {counted:.2f} µs a node, {bare:.2f} µs without; {counted / bare - 1:+.1%}", flush=True
        )


if __name__ == "__main__":
    main()
