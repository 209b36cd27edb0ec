"""All faults by key."""

from __future__ import annotations

from tests.faults import broker, cluster, delivery, expressions, merge, nodes, routing, server, split
from tests.faults.change import Change
from tests.faults.fault import SHORT_DEADLINES, Fault

FAULTS: dict[str, Fault] = {
    **routing.TABLE,
    **delivery.TABLE,
    **broker.TABLE,
    **split.TABLE,
    **merge.TABLE,
    **expressions.TABLE,
    **nodes.TABLE,
    **server.TABLE,
}
"""Each key stands beside its test in `tests/hazards`."""

ALL_FAULTS: dict[str, Fault] = {**FAULTS, **cluster.TABLE, **server.ELSEWHERE}
"""With the tests of the same hazards on a cluster, and with tests in other folders."""

NO_FAULT: dict[str, tuple[Change, ...]] = {"none": SHORT_DEADLINES}
"""What is installed to see whether a test passes without any fault."""
