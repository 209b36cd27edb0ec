"""Runs a job at the size that its counts are stored for.

Executions run one after the other, so that what one of them does never shares a commit with another.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

from rune.cli.bench.jobs import CHAIN, JOBS, Job, Place
from rune.cli.bench.place import NODES, EnginePlace, open_place
from rune.settings import Settings
from tests.support.work_counts import WorkCounts

COUNTED = tuple(name for name in JOBS if not name.endswith("-100k"))
"""The others only have more items."""


class Sizes(NamedTuple):
    """How many items a fan-out has, and how many chains and executions of one node run."""

    items: int
    chains: int
    executions: int


USUAL = Sizes(items=100, chains=3, executions=6)
SMALL = Sizes(items=25, chains=2, executions=4)
"""For engines whose calls take longer."""


async def run_counted(job: Job, place: Place, reset: Callable[[], None], sizes: Sizes = USUAL) -> int:
    """Run a job, reset the counts, run it again; return how many units the second time had."""
    units, times = _size(job, sizes)
    for _ in range(min(times, 3)):
        await job.load(place, units, 1)
    reset()
    return sum([(await job.load(place, units, 1)).units for _ in range(times)])


def _size(job: Job, sizes: Sizes) -> tuple[int, int]:
    """Return the units of one execution or request, and the number of these."""
    if job.unit == "items":
        return sizes.items, 1
    return (CHAIN, sizes.chains) if job.unit == "nodes" else (1, sizes.executions)


async def turn(_: Any) -> None:
    """Pause for one turn of the event loop, instead of for a time."""
    await asyncio.sleep(0)


def count_embedded(name: str, folder: Path) -> tuple[WorkCounts, int]:
    """Count what the embedded engine does in a job; return the counts and the number of units."""
    job, counts = JOBS[name], WorkCounts()

    async def run() -> int:
        async with open_place(Settings(home=str(folder), nodes=NODES), serves=job.serves) as place:
            with counts.attached(), patch.object(EnginePlace, "_pause", turn):
                return await run_counted(job, place, counts.reset)

    with counts.counting():
        units = asyncio.run(run())
    return counts, units
