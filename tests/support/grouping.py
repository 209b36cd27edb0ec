"""Groups of tests that run in one process of pytest-xdist, and their order.

Each process starts the servers and the cluster processes that its tests need. Tests of one file therefore form a
group, and so do tests that use the same cluster. Files with many independent tests are cut into several groups, so that
no process is left alone with a long file at the end.

`--dist=loadgroup` would do for this, but pytest-xdist passes the group of a mark on in the node id of the item, which
pytest 9.2 no longer reads back. Hence the scheduler here.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

# The cluster of a test of tests/integration/cluster is part of its id.
_CLUSTER = re.compile(r"^tests/integration/cluster/.*[\[-]((?:redis|rabbitmq)-[a-z_]+)[\]-]")

# Other tests that share a cluster.
FLEETS = {
    "tests/integration/telemetry/test_fault_metrics.py::test_queue_without_worker": "watched",
    "tests/integration/telemetry/test_cluster.py": "watched",
}
SAME = {"rabbitmq-quorum": "rabbitmq-inline", "rabbitmq-batched": "rabbitmq-inline"}  # all are short

# Tests per group, for files whose tests share nothing.
CUT = {
    "tests/unit/core/": 40,
    "tests/integration/embedded/test_crash.py": 12,
    "tests/integration/embedded/test_operation_crashes.py": 14,
    "tests/integration/embedded/test_operation_races.py": 3,
    "tests/integration/embedded/test_differential.py": 2,
    "tests/acceptance/conformance/test_run.py": 70,
    "tests/acceptance/conformance/test_steps.py": 40,
    "tests/contract/test_sqlite.py": 50,
    "tests/contract/test_postgres.py": 50,
    "tests/unit/nodes/io/test_address_guard.py": 130,
    "tests/lint/": 200,
}

# The folders that take longest start first; all others follow.
FIRST = (
    "tests/integration/cluster/",
    "tests/integration/cluster_faults/",
    "tests/acceptance/api/",
    "tests/integration/triggers/",
    "tests/hazards/",
    "tests/integration/embedded/",
    "tests/integration/telemetry/",
    "tests/acceptance/deploy/",
    "tests/acceptance/access/",
    "tests/acceptance/conformance/",
    "tests/contract/",
    "tests/integration/postgres/",
    "tests/integration/rabbitmq/",
    "tests/acceptance/cli/",
)


def grouped(tests: Iterable[str]) -> dict[str, str]:
    """Map each test to its group."""
    seen: Counter[str] = Counter()
    found = {}
    for test in tests:
        file = test.partition("::")[0]
        fleet = _fleet(test)
        piece = next((count for name, count in CUT.items() if file.startswith(name)), None)
        if fleet is not None:
            found[test] = f"{file.rpartition('/')[0]}/{SAME.get(fleet, fleet)}"
        elif piece is not None:
            found[test] = f"{file} {seen[file] // piece}"
            seen[file] += 1
        else:
            found[test] = file
    return found


def _fleet(test: str) -> str | None:
    found = _CLUSTER.search(test)
    if found is not None:
        return found[1]
    return next((fleet for name, fleet in FLEETS.items() if test.startswith(name)), None)


def rank(group: str) -> int:
    """Position of a group in the run: lower ranks start earlier."""
    return next((place for place, name in enumerate(FIRST) if group.startswith(name)), len(FIRST))


class GroupScheduling(LoadScopeScheduling):  # type: ignore[misc]
    """Gives the next group to a process that has nothing left to do."""

    def __init__(self, config: Any, log: Any = None) -> None:
        super().__init__(config, log)
        self._groups: dict[str, str] = {}

    def schedule(self) -> None:
        if not self._groups:
            self._groups = grouped(next(iter(self.registered_collections.values())))
        super().schedule()

    def _split_scope(self, nodeid: str) -> str:
        return self._groups[nodeid]
