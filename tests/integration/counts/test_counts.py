"""What each job does per unit is what it did when `counts.json` was stored, within 2 %.

`make counts` stores the counts of today; the difference of the file belongs to the change that causes it. What an
engine does every so many milliseconds adds to the counts on a slow machine, and never takes anything away: a job is run
again while a count differs, up to `MOST_RUNS` times, and the smallest of each count is compared.

Wider tolerances:

- `WIDER`: turns of the scheduler and of other loops are most of all steps of coroutines and statements. SQLite writes
  whole pages, and where a random id goes in an index decides how many. `library` has the iterations of the event loop,
  which takes several events at once when it was late; it also depends on the version of Python, and is compared on that
  of the stored counts only.
- `GROUPED`, `GROUPED_BY`: how many items are written, claimed or applied together depends on how long the store took
  for those before: items that come together share statements and have a task each. A cluster may differ by so many
  calls per item.
- `ARMED`: the scheduler looks at the waits of as many executions as were started since it looked last.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import pytest

from rune.cli.bench.jobs import JOBS
from rune.cli.bench.place import NODES, EnginePlace
from rune.nodes.registry import full_registry
from tests.integration.counts.runs import COUNTED, SMALL, count_embedded, run_counted
from tests.support.backends import ClusterBackend, backends
from tests.support.server_calls import counted_calls

STORED = Path(__file__).with_name("counts.json")
REFRESH = "RUNE_COUNTS"
TOLERANCE = 0.02
WIDER = {"bytes": 0.1, "calls": 0.03, "library": 0.25, "statements": 0.06, "steps": 0.05}
ARMED = {"calls": 0.05, "library": 0.25, "steps": 0.1}
GROUPED = {"bytes": 0.5, "calls": 0.06, "library": 1.0, "statements": 0.5, "steps": 0.1, "tasks": 1.1}
GROUPED_BY = 0.45
GROUPED_CALLS = frozenset(
    {
        "postgres blob_get",
        "postgres record",
        "rabbitmq post workflow.node.status",
        "redis apply",
        "redis claim",
    }
)
SMALLEST = 0.05
"""A difference of less than one in twenty units is none: the counts include what an engine does at times."""

PERIODIC = frozenset(
    {
        "postgres block_list",
        "postgres ends_of",
        "postgres expectations_due",
        "postgres hook_take",
        "postgres outbox_mark_done",
        "postgres outbox_take",
        "postgres triggers_due",
        "postgres triggers_next_due",
        "redis GET",
        "redis HGET",
        "redis HSET",
        "redis TIME",
        "redis XAUTOCLAIM",
        "redis XREADGROUP",
        "redis ZCOUNT",
        "redis ZRANGE",
        "redis delay",
        "redis renew",
        "redis sent",
    }
)
"""What processes of a cluster call every so many milliseconds, whether they work or not."""

ON_CLUSTERS = tuple(name for name in COUNTED if not JOBS[name].serves and name != "armed-waits")
"""Requests and waits call the servers as a node and a start do."""


MOST_RUNS = 4

Counts = dict[str, float]


async def compare(backend: str, job: str, count: Callable[[], Awaitable[Counts]]) -> None:
    """Compare counts per unit with the stored ones, or store them if the environment says so."""
    stored = json.loads(STORED.read_text()) if STORED.exists() else {}
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    counts = await count()
    if REFRESH in os.environ:
        counts = _smallest(counts, await count())
        stored["python"] = version
        stored.setdefault(backend, {})[job] = {name: round(counts[name], 3) for name in sorted(counts)}
        STORED.write_text(json.dumps(stored, indent=2, sort_keys=True) + "\n")
        return
    expected = stored[backend][job]
    if version != stored["python"]:
        expected = {name: number for name, number in expected.items() if name != "library"}
    for _ in range(MOST_RUNS - 1):
        if not _differences(job, counts, expected):
            return
        counts = _smallest(counts, await count())
    differences = _differences(job, counts, expected)
    assert not differences, (
        f"{job} on {backend} does more or less per unit than before:\n  "
        + "\n  ".join(differences)
        + f"\n`python -m tests.integration.counts {job}` prints what it calls, `make counts` stores the counts of today"
    )


def _smallest(one: Counts, other: Counts) -> Counts:
    return {name: min(one.get(name, 0.0), other.get(name, 0.0)) for name in one.keys() | other.keys()}


def _differences(job: str, counts: Counts, expected: Counts) -> list[str]:
    names = sorted(expected.keys() | (counts.keys() - {"library"}))
    return [
        f"{name}: {counts.get(name, 0):.2f}, stored {expected.get(name, 0):.2f}"
        for name in names
        if abs(counts.get(name, 0) - expected.get(name, 0)) > _allowed(job, name, expected.get(name, 0))
    ]


def _allowed(job: str, name: str, expected: float) -> float:
    if JOBS[job].unit == "items":
        if name in GROUPED_CALLS:
            return GROUPED_BY
        return max(GROUPED.get(name, TOLERANCE) * expected, SMALLEST)
    share = WIDER.get(name, TOLERANCE)
    if job == "armed-waits":
        share = ARMED.get(name, share)
    return max(share * expected, SMALLEST)


@pytest.mark.parametrize("name", COUNTED)
def test_embedded_engine_does_as_much_as_before(name: str, tmp_path: Path) -> None:
    runs = itertools.count()

    async def count() -> Counts:
        # In a thread, which has an event loop of its own.
        counts, units = await asyncio.to_thread(count_embedded, name, tmp_path / str(next(runs)))
        return {each: number / units for each, number in counts.totals().items()}

    asyncio.run(compare("embedded", name, count))


@backends("redis", "rabbitmq")
def test_cluster_calls_its_servers_as_often_as_before(
    backend: ClusterBackend, request: pytest.FixtureRequest
) -> None:
    called: Counter[str] = Counter()
    kind = request.node.callspec.params["backend"]

    async def run() -> None:
        async with backend.open(registry=full_registry(NODES)) as engine:
            place = EnginePlace(engine.engine)
            for name in ON_CLUSTERS:
                await compare(kind, name, partial(count, name, place))

    async def count(name: str, place: EnginePlace) -> Counts:
        units = await run_counted(JOBS[name], place, called.clear, SMALL)
        return {what: number / units for what, number in called.items() if what not in PERIODIC}

    with counted_calls(lambda server, what: called.update([f"{server} {what}"])):
        asyncio.run(run())
