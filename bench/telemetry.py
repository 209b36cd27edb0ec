"""Measures the cost of counters and log context: CPU time per node with and without them.

    python bench/telemetry.py [TURNS]

One engine runs chains of ten nodes in short turns, with telemetry disabled in half of them. The medians of the CPU
times are compared, so that other load on the machine has little influence.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
import time
from typing import Any

# Remove this folder: its file names shadow standard library modules.
sys.path.pop(0)

from rune.adapters.sqlite.queue import QueueAges
from rune.bootstrap import running_engine
from rune.cli.bench import workloads
from rune.cli.bench.workloads import completed
from rune.runtime.worker import executor
from rune.settings import Settings
from rune.telemetry.counters import Counters

EXECUTIONS = 200
NODES = 10


class _NoContext:
    def set(self, context: Any) -> None:
        """Discard the context."""


def _ignore(*arguments: Any) -> None:
    """Do nothing."""


REPLACEMENTS: tuple[tuple[Any, str, Any], ...] = (
    (Counters, "node_finished", _ignore),
    (QueueAges, "mark", _ignore),
    (executor, "LOG_CONTEXT", _NoContext()),
    (executor, "now_ns", int),
)
ORIGINALS = [getattr(owner, name) for owner, name, _ in REPLACEMENTS]


def set_telemetry(*, on: bool) -> None:
    """Enable or disable telemetry."""
    for (owner, name, replacement), original in zip(REPLACEMENTS, ORIGINALS, strict=True):
        setattr(owner, name, original if on else replacement)


async def measure(turns: int, *, effectful: bool) -> tuple[float, float]:
    """Return the CPU time in µs per node with and without telemetry."""
    spent: dict[bool, list[float]] = {True: [], False: []}
    with tempfile.TemporaryDirectory(prefix="rune-bench-") as folder:
        async with running_engine(Settings(home=folder, durability="relaxed")) as engine:
            plan = workloads.chain(NODES, engine.registry.catalogue, effectful=effectful)
            await completed(engine, plan, [b"{}"] * EXECUTIONS, EXECUTIONS)
            for turn in range(2 * turns):
                # The order on, off, off, on cancels effects that recur every other turn.
                on = turn % 4 in (0, 3)
                set_telemetry(on=on)
                before = time.thread_time()
                await completed(engine, plan, [b'{"x": 1}'] * EXECUTIONS, EXECUTIONS)
                spent[on].append((time.thread_time() - before) / (EXECUTIONS * NODES) * 1e6)
            set_telemetry(on=True)
    return statistics.median(spent[True]), statistics.median(spent[False])


def main() -> None:
    """Measure nodes that are committed together, and nodes that are queued separately."""
    turns = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    for kind in ("pure", "effectful"):
        counted, bare = asyncio.run(measure(turns, effectful=kind == "effectful"))
        print(
            f"{kind}: {counted:.2f} µs a node, {bare:.2f} µs without; {counted / bare - 1:+.1%}", flush=True
        )


if __name__ == "__main__":
    main()
