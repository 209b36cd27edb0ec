"""Groups of tests that run in one process of pytest-xdist, and their order.

Each process starts the servers and the cluster processes that its tests need. Tests of one file therefore form a
group, and so do tests that use the same cluster. Files with many independent tests are cut into several groups, so that
no process is left alone with a long file at the end. `tests/conftest.py` marks each test with its group.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

# The clusters of a folder. A cluster runs while tests of its folder follow each other in one process.
_FLEET = re.compile(r"\[(in_place|travelling|quorum|inline)\]$")
FLEETS = {
    "tests/integration/cluster/test_commands.py": "in_place",
    "tests/integration/cluster/test_folding.py::test_what_is_at_rest": "in_place",
    "tests/integration/cluster/test_folding.py": "travelling",
    "tests/integration/rabbitmq_cluster/test_by_hand.py": "travelling",
    "tests/integration/rabbitmq_cluster/test_commands.py": "travelling",
    "tests/integration/rabbitmq_cluster/test_inline.py": "inline",
    "tests/integration/telemetry/test_faults.py::test_a_queue_that_nobody_serves": "watched",
    "tests/integration/telemetry/test_fleet.py": "watched",
}
SAME = {"quorum": "inline"}  # both are short

# Tests per group, for files whose tests share nothing.
CUT = {
    "tests/unit/core/": 40,
    "tests/integration/embedded/test_crash.py": 12,
    "tests/integration/embedded/test_acts_crash.py": 14,
    "tests/integration/embedded/test_acts_races.py": 3,
    "tests/integration/embedded/test_differential.py": 2,
    "tests/acceptance/conformance/test_run.py": 70,
    "tests/acceptance/conformance/test_steps.py": 40,
    "tests/contract/test_embedded.py": 50,
    "tests/contract/test_postgres.py": 50,
    "tests/unit/nodes/io/test_guard.py": 130,
    "tests/lint/": 200,
}

# The folders that take longest start first; all others follow.
FIRST = (
    "tests/integration/rabbitmq_cluster/",
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
    "tests/integration/rabbitmq/",
    "tests/acceptance/cli/",
)


def grouped(tests: Iterable[str]) -> dict[str, str]:
    """Map each test to its group."""
    met: Counter[str] = Counter()
    found = {}
    for test in tests:
        file = test.partition("::")[0]
        fleet = _fleet(test)
        piece = next((count for name, count in CUT.items() if file.startswith(name)), None)
        if fleet is not None:
            found[test] = f"{file.rpartition('/')[0]}/{SAME.get(fleet, fleet)}"
        elif piece is not None:
            found[test] = f"{file} {met[file] // piece}"
            met[file] += 1
        else:
            found[test] = file
    return found


def _fleet(test: str) -> str | None:
    named = next((fleet for name, fleet in FLEETS.items() if test.startswith(name)), None)
    told = _FLEET.search(test)
    return named if told is None or named is not None else told[1]


def rank(group: str) -> int:
    """Position of a group in the run: lower ranks start earlier."""
    return next((place for place, name in enumerate(FIRST) if group.startswith(name)), len(FIRST))
