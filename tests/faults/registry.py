"""All faults by key."""

from __future__ import annotations

from tests.faults import (
    backlog,
    broker,
    chunks,
    cluster,
    counts,
    delivery,
    expressions,
    merge,
    nodes,
    redis_cluster,
    routing,
    server,
    split,
)
from tests.faults.change import Change
from tests.faults.fault import SHORT_DEADLINES, Fault

FAULTS: dict[str, Fault] = {
    **routing.TABLE,
    **delivery.TABLE,
    **broker.TABLE,
    **cluster.TABLE,
    **split.TABLE,
    **merge.TABLE,
    **expressions.TABLE,
    **nodes.TABLE,
    **server.TABLE,
}
"""A comment in the test, in `tests/hazards`, names the key."""

ALL_FAULTS: dict[str, Fault] = {
    **FAULTS,
    **server.ELSEWHERE,
    **cluster.ELSEWHERE,
    **chunks.ELSEWHERE,
    **counts.ELSEWHERE,
    **backlog.ELSEWHERE,
    **redis_cluster.ELSEWHERE,
}
"""Including those of tests in other folders."""

NO_FAULT: dict[str, tuple[Change, ...]] = {"none": SHORT_DEADLINES}
"""Installed to check that a test passes without any fault."""
