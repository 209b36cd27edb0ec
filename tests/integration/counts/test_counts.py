"""What each job does per unit is what it did when `counts.json` was stored, within 2 %.

Counts do not depend on the load of the machine, so a test can hold them where it could not hold times. `make counts`
stores the counts of today; the difference of the file belongs to the change that causes it.

Wider tolerances:

- `GROUPED`, `GROUPED_BY`: how many items are written, claimed or applied together depends on how long the store took
  for those before: items that come together share statements and have a task each. A cluster may differ by so many
  calls per item.
- `ARMED`: the scheduler looks at the waits of as many executions as were started since it looked last.
- `redis XREADGROUP` returns empty after a time, and is called again.
- `bytes`: SQLite writes whole pages, and where a random id goes in an index decides how many.
- `library` counts iterations of the event loop, which takes several events at once when it was late. It also depends on
  the version of Python, and is compared on that of the stored counts only.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections import Counter
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
WIDER = {"bytes": 0.1, "library": 0.1, "redis XREADGROUP": 0.2}
ARMED = {"calls": 0.05, "library": 0.25, "steps": 0.1}
GROUPED = {"bytes": 0.5, "calls": 0.06, "library": 0.5, "statements": 0.5, "steps": 0.1, "tasks": 1.1}
GROUPED_BY = 0.45
GROUPED_CALLS = frozenset(
    {"postgres blob_get", "postgres record", "redis XREADGROUP", "redis apply", "redis claim"}
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
        "redis TIME",
        "redis XAUTOCLAIM",
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


def compare(backend: str, job: str, counts: dict[str, float]) -> None:
    """Compare counts per unit with the stored ones, or store them if the environment says so."""
    stored = json.loads(STORED.read_text()) if STORED.exists() else {}
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    if REFRESH in os.environ:
        stored["python"] = version
        stored.setdefault(backend, {})[job] = {name: round(counts[name], 3) for name in sorted(counts)}
        STORED.write_text(json.dumps(stored, indent=2, sort_keys=True) + "\n")
        return
    expected = stored[backend][job]
    differences = [
        f"{name}: {counts.get(name, 0):.2f}, stored {expected.get(name, 0):.2f}"
        for name in sorted(expected.keys() | counts.keys())
        if (name != "library" or version == stored["python"])
        and abs(counts.get(name, 0) - expected.get(name, 0)) > _allowed(job, name, expected.get(name, 0))
    ]
    assert not differences, (
        f"{job} on {backend} does more or less per unit than before:\n  "
        + "\n  ".join(differences)
        + f"\n`python -m tests.integration.counts {job}` prints what it calls, `make counts` stores the counts of today"
    )


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
    counts, units = count_embedded(name, tmp_path)

    compare("embedded", name, {each: number / units for each, number in counts.totals().items()})


@backends("redis", "rabbitmq")
def test_cluster_calls_its_servers_as_often_as_before(
    backend: ClusterBackend, request: pytest.FixtureRequest
) -> None:
    called: Counter[str] = Counter()

    async def run() -> None:
        async with backend.open(registry=full_registry(NODES)) as engine:
            place = EnginePlace(engine.engine)
            for name in ON_CLUSTERS:
                units = await run_counted(JOBS[name], place, called.clear, SMALL)
                counts = {what: number / units for what, number in called.items() if what not in PERIODIC}
                compare(request.node.callspec.params["backend"], name, counts)

    with counted_calls(lambda server, what: called.update([f"{server} {what}"])):
        asyncio.run(run())
