"""What each job does per unit is what it did when `counts.json` was stored. `make counts` stores the counts of today;
the difference of the file belongs to the change that causes it.

A count may differ by 2 %, and by less than one in two units: one more call, step or statement per node, item or
execution fails. Counts are the same in each run, since nothing counted depends on time:

- On the embedded engine time stands still (`tests/support/work_counts.py`).
- On clusters an engine has one slot, so that a node is never written, claimed or sent together with another, and only
  what is called while a node runs, a start is accepted or an execution ends is counted, not what loops do.

Not held, since they depend on time: the bytes that SQLite writes, how many writes share a commit, calls of libraries;
on clusters the number of reads of a queue, renewals of leases, what confirms starts in groups (`outbox_mark_done`), and
pure items, of which so many come together as were read from the queue; over RabbitMQ also items with an effect, some of
which are sent again while the machine is busy.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from types import FrameType

import pytest

import rune
from rune.cli.bench.jobs import JOBS
from rune.cli.bench.place import NODES, EnginePlace
from rune.nodes.registry import full_registry
from rune.runtime.worker import worker
from tests.integration.counts.runs import COUNTED, SMALL, count_embedded, run_counted
from tests.support.backends import ClusterBackend, backends
from tests.support.server_calls import counted_calls

STORED = Path(__file__).with_name("counts.json")
REFRESH = "RUNE_COUNTS"
TOLERANCE = 0.02
LESS_THAN_ONE = 0.5

CHAINS = ("one-node", "chain-async", "chain-def", "chain-pure")
ON_CLUSTERS = {"redis": (*CHAINS, "fan-effect-10k", "nested-effect"), "rabbitmq": CHAINS}
"""Requests and waits call the servers as a node and a start do."""

PACKAGE = str(Path(rune.__file__).parent) + "/"
COUNTED_CALLERS = (
    "adapters/postgres/journal.py",
    "adapters/rabbitmq/amqp/connection.py",
    "adapters/redis/stores.py",
    "batcher.py",
    "runtime/lifecycle/launcher.py",
    "runtime/messaging/completion_publisher.py",
    "runtime/worker/",
)
"""Where a task begins that runs a node, accepts a start or ends an execution."""

TIMED = frozenset({"postgres outbox_mark_done", "redis XREADGROUP", "redis renew"})


def compare(backend: str, job: str, totals: Mapping[str, int], units: int) -> None:
    """Compare counts per unit with the stored ones, or store them if the environment says so."""
    stored = json.loads(STORED.read_text()) if STORED.exists() else {}
    counts = {name: round(totals[name] / units, 3) for name in sorted(totals)}
    if REFRESH in os.environ:
        stored.setdefault(backend, {})[job] = counts
        STORED.write_text(json.dumps(stored, indent=2, sort_keys=True) + "\n")
        return
    expected = stored[backend][job]
    differences = [
        f"{name}: {counts.get(name, 0.0):.3f}, stored {expected.get(name, 0.0):.3f}"
        for name in sorted(expected.keys() | counts.keys())
        if not _same(counts.get(name, 0.0), expected.get(name, 0.0))
    ]
    assert not differences, (
        f"{job} on {backend} does more or less per unit than before:\n  "
        + "\n  ".join(differences)
        + f"\n`python -m tests.integration.counts {job}` prints what it calls, `make counts` stores the counts of today"
    )


def _same(count: float, expected: float) -> bool:
    """Compare counts; both are rounded."""
    return math.isclose(count, expected, rel_tol=TOLERANCE, abs_tol=0.001) and (
        abs(count - expected) < LESS_THAN_ONE
    )


@pytest.mark.parametrize("name", COUNTED)
def test_embedded_engine_does_as_much_as_before(name: str, tmp_path: Path) -> None:
    counts, units = count_embedded(name, tmp_path)

    compare("embedded", name, counts.totals(), units)


@backends("redis", "rabbitmq")
def test_cluster_calls_its_servers_as_often_as_before(
    backend: ClusterBackend, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The only slot is kept for the successors of a node however long they take.
    monkeypatch.setattr(worker, "MAX_TURN_S", math.inf)
    called: Counter[str] = Counter()
    results: dict[str, tuple[Counter[str], int]] = {}
    kind = request.node.callspec.params["backend"]

    async def run() -> None:
        async with backend.open(registry=full_registry(NODES), slots=1) as engine:
            place = EnginePlace(engine.engine)
            for name in ON_CLUSTERS[kind]:
                units = await run_counted(JOBS[name], place, called.clear, SMALL)
                results[name] = called.copy(), units

    def add(server: str, what: str) -> None:
        name = f"{server} {what}"
        if name not in TIMED and _first_module().startswith(COUNTED_CALLERS):
            called[name] += 1

    with counted_calls(add):
        asyncio.run(run())
    for name, (totals, units) in results.items():
        compare(kind, name, totals, units)


def _first_module() -> str:
    """Return the module of the package where the current task, or the callback of the event loop, begins."""
    frame: FrameType | None = sys._getframe(1)
    module = ""
    while frame is not None:
        path = frame.f_code.co_filename
        if path.startswith(PACKAGE) and not path.startswith(PACKAGE + "cli/"):
            module = path.removeprefix(PACKAGE)
        frame = frame.f_back
    return module
