"""Graphs whose joins double their payload: forks of two branches in a row, with a small limit of bytes.

Written out, a payload grows with two to the power of the joins; what exists of it grows with their number. The expected
end follows from the lengths alone: the first join whose payload is longer than the limit fails.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from random import Random

from msgspec import structs

from rune.core.execution.fact import NodeResult
from rune.core.limits import LIMITS
from tests.simulation.case import Case, compile_model
from tests.simulation.execution import Execution
from tests.simulation.journal import ViolationError
from tests.simulation.oracle.model import Edge, Model, Node, Noop, Trigger
from tests.simulation.values import check_shared

GROWING_INTERVAL = 50
"""Every n-th seed runs a growing graph, none of them one with a handwritten model."""


@dataclass(frozen=True)
class Growing:
    """A growing graph, and the names of the two branches in front of each join."""

    case: Case
    branches: tuple[tuple[str, str], ...]

    def check(self, execution: Execution) -> None:
        """The joins with a payload up to the limit have passed it on, and the first longer one has failed."""
        end, fails_at = execution.journal.end, self._first_too_large()
        assert end is not None
        if end.status == "cancelled":
            return
        code = end.error.code if end.error else None
        expected = ("completed", None) if fails_at is None else ("halted", "LIMIT_EXCEEDED")
        if (end.status, code) != expected:
            raise ViolationError(f"ended as {end.status} {code}, expected {expected}")
        plan = execution.case.plan
        for fact in execution.journal.facts.values():
            failed = isinstance(fact, NodeResult) and fact.status == "failed"
            if isinstance(fact, NodeResult) and failed is not (plan.ids[fact.node] == f"j{fails_at}"):
                raise ViolationError(f"{plan.ids[fact.node]} is {fact.status}, join {fails_at} is too large")
            if isinstance(fact, NodeResult) and not failed:
                check_shared(execution.value(fact), len(plan.nodes))

    def _first_too_large(self) -> int | None:
        size = len(json.dumps(self.case.start))
        for number, names in enumerate(self.branches):
            size = len("{}") + sum(len(f'"{name}":,') + size for name in names)
            if size > self.case.limits.output_bytes or number + 1 > self.case.limits.json_depth:
                return number
        return None


def growing_case(seed: int) -> Growing | None:
    """The growing graph of a seed, if it has one."""
    if seed % GROWING_INTERVAL != GROWING_INTERVAL // 2 - 1:
        return None
    rng = Random(f"growing-{seed}")
    branches = tuple(
        (f"a{number}" + "x" * rng.randrange(9), f"b{number}")
        for number in range(rng.choice((2, 5, 9, 14, 30)))
    )
    nodes, edges, before = [Node("start", Trigger())], [], "start"
    for number, names in enumerate(branches):
        nodes += [Node(name, Noop()) for name in (*names, f"j{number}")]
        edges += [(before, name) for name in names] + [(name, f"j{number}") for name in names]
        before = f"j{number}"
    wires = tuple(Edge(f"e{number}", source, target) for number, (source, target) in enumerate(edges))
    model = Model("growing", tuple(nodes), wires)
    limits = structs.replace(
        LIMITS, output_bytes=rng.choice((500, 20_000, 3_000_000)), json_depth=rng.choice((4, 100))
    )
    return Growing(
        Case(model, compile_model(model), "s" * rng.choice((1, 40, 400)), {}, limits=limits), branches
    )
