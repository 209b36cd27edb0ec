"""Which tests share a process, and which are begun first, where several processes run them.

Whatever is costly to start (a server, a fleet) is started by each process that needs it. Tests of one file therefore
stay together, and so do those that ask for the same fleet. Files of many tests that share nothing are cut into pieces,
so that nobody is left with a long one at the end.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

if TYPE_CHECKING:
    import pytest

# The fleets of a folder; each stands while tests of its folder follow one another in a process.
_FLEET = re.compile(r"\[(in_place|travelling|quorum|inline)\]$")
FLEETS = {
    "tests/cluster/test_commands.py": "in_place",
    "tests/cluster/test_folding.py::test_what_is_at_rest": "in_place",
    "tests/cluster/test_folding.py": "travelling",
    "tests/rabbitmq_cluster/test_by_hand.py": "travelling",
    "tests/rabbitmq_cluster/test_commands.py": "travelling",
    "tests/rabbitmq_cluster/test_inline.py": "inline",
    "tests/telemetry/test_faults.py::test_a_queue_that_nobody_serves": "watched",
    "tests/telemetry/test_fleet.py": "watched",
}
SAME = {"quorum": "inline"}  # short ones, one after the other

# How many tests are taken at once of files whose tests share nothing.
CUT = {
    "tests/core/": 40,
    "tests/runtime/test_crash.py": 12,
    "tests/runtime/test_acts_crash.py": 14,
    "tests/runtime/test_acts_races.py": 3,
    "tests/runtime/test_differential.py": 2,
    "tests/conformance/test_run.py": 70,
    "tests/conformance/test_steps.py": 40,
    "tests/contract/test_embedded.py": 50,
    "tests/contract/test_postgres.py": 50,
    "tests/nodes/io/test_guard.py": 130,
    "tests/house/": 200,
}

# What takes longest, in this order; everything else comes behind.
FIRST = (
    "tests/rabbitmq_cluster/",
    "tests/cluster/",
    "tests/cluster_faults/",
    "tests/master/",
    "tests/triggers/",
    "tests/hazards/",
    "tests/runtime/",
    "tests/telemetry/",
    "tests/deploy/",
    "tests/access/",
    "tests/conformance/",
    "tests/contract/",
    "tests/rabbitmq/",
    "tests/cli/",
)


def grouped(tests: Iterable[str]) -> dict[str, str]:
    """The group of each test."""
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
    """The place of a group among all: the lower, the earlier it is begun."""
    return next((place for place, name in enumerate(FIRST) if group.startswith(name)), len(FIRST))


class Together(LoadScopeScheduling):  # type: ignore[misc]
    """Gives a process that has nothing left to do the next group."""

    def __init__(self, config: pytest.Config, log: Any = None) -> None:
        super().__init__(config, log)
        self._groups: dict[str, str] = {}

    def schedule(self) -> None:
        if not self._groups:
            self._groups = grouped(next(iter(self.registered_collections.values())))
        super().schedule()

    def _split_scope(self, nodeid: str) -> str:
        return self._groups[nodeid]

    def _assign_work_unit(self, node: Any) -> None:
        self.workqueue.move_to_end(min(self.workqueue, key=rank), last=False)
        super()._assign_work_unit(node)
