"""Values of joins are shared, and their size is known without writing them out."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rune.core.execution.fact import NodeResult
from rune.core.execution.scope import ValueSource
from rune.core.execution.stored_value import Same
from rune.core.execution.token import START, Arrived, Ref, Token
from rune.core.limits import LIMITS, Limits
from rune.core.plan.model import Plan
from rune.errors import LimitExceededError
from tests.support.plans import NOW, plan

LEVELS = 60


class Execution:
    """The results of a chain of diamonds or of nodes, as an engine records them."""

    def __init__(self, plan: Plan, start: Any, limits: Limits = LIMITS) -> None:
        self.plan = plan
        self.looked_up = 0
        self.results: dict[int, NodeResult] = {}
        self.values = ValueSource(plan, start, self._look_up, {"id": "x"}, lambda value: value)
        self.values.limits = limits

    def _look_up(self, node: int, path: tuple[int, ...]) -> NodeResult | None:
        self.looked_up += 1
        return self.results.get(node)

    def passes(self, name: str, *sources: str) -> None:
        """Record a node that passes on what it received from these nodes."""
        index = self.plan.index[name]
        arrived = tuple(
            Arrived(edge, self.payload_of(self.plan.ids[self.plan.src[edge]]))
            for edge in self.plan.nodes[index].in_edges
        )
        payload = Ref("entered", index) if len(arrived) > 1 else arrived[0].payload
        self.results[index] = NodeResult(index, (), NOW, "ok", value=Same(payload), arrived=arrived)

    def payload_of(self, name: str) -> Ref:
        index = self.plan.index[name]
        return START if index in self.plan.triggers else Ref("result", index)

    def value(self, name: str) -> Any:
        return self.values.value(self.payload_of(name))


def diamonds(count: int, start: Any, limits: Limits = LIMITS) -> Execution:
    arrows = [f"n{at} -> a{at} -> n{at + 1}, n{at} -> b{at} -> n{at + 1}" for at in range(count)]
    execution = Execution(plan(", ".join(["start -> n0", *arrows])), start, limits)
    execution.passes("n0")
    for at in range(count):
        for name in (f"a{at}", f"b{at}", f"n{at + 1}"):
            execution.passes(name)
    return execution


def test_branches_of_a_join_are_the_same_object() -> None:
    execution = diamonds(LEVELS, 1, Limits(output_bytes=1 << 100))

    value = execution.value(f"n{LEVELS}")

    for at in reversed(range(LEVELS)):
        assert value[f"a{at}"] is value[f"b{at}"]
        value = value[f"a{at}"]
    assert value == 1
    assert execution.looked_up < 100 * LEVELS


def test_payload_above_the_limit_is_not_built() -> None:
    execution = diamonds(LEVELS, {"k": "x" * 100})
    assert execution.value("n10")

    with pytest.raises(LimitExceededError, match="bytes of the payload"):
        execution.value(f"n{LEVELS}")


def test_joins_inside_of_joins_are_limited_by_depth() -> None:
    execution = diamonds(LEVELS, 1, Limits(output_bytes=1 << 100, json_depth=LEVELS - 1))
    assert execution.value(f"n{LEVELS - 1}")

    with pytest.raises(LimitExceededError, match="nesting of the payload"):
        execution.value(f"n{LEVELS}")


def test_size_of_a_join_is_that_of_its_json() -> None:
    execution = diamonds(3, {"k": [1, 2]})
    value = execution.value("n3")

    def length(value: Any) -> int:

        return len(json.dumps(value, separators=(",", ":")))

    shown = execution.values.joined(Ref("entered", execution.plan.index["n3"])).size
    assert length(value) <= shown <= length(value) + 2**4


def test_long_chain_of_nodes_that_pass_a_value_on_needs_no_stack() -> None:
    names = [f"n{at}" for at in range(1_500)]
    execution = Execution(plan("start -> " + " -> ".join(names)), {"k": 1})
    for name in names:
        execution.passes(name)

    assert execution.value(names[-1]) == {"k": 1}
    assert execution.value(names[700]) is execution.value(names[-1])
    before = execution.looked_up
    assert execution.value(names[-1]) == {"k": 1}
    assert execution.looked_up == before


def test_token_of_a_join_reads_what_arrived_at_it() -> None:
    execution = diamonds(2, 7)
    index = execution.plan.index["n1"]
    result = execution.results.pop(index)
    token = Token(index, (), Ref("entered", index), arrived=result.arrived)

    assert execution.values.value(token.payload, token) == {"a0": 7, "b0": 7}
    execution.results[index] = result
    execution.values.value(Ref("entered", execution.plan.index["n2"]))
    assert execution.value("n2") == {"a1": {"a0": 7, "b0": 7}, "b1": {"a0": 7, "b0": 7}}


def test_chain_behind_a_known_one_is_followed_to_it() -> None:
    names = [f"n{at}" for at in range(10)]
    execution = Execution(plan("start -> " + " -> ".join(names)), {"k": 1})
    for name in names:
        execution.passes(name)
    execution.value(names[4])
    before = execution.looked_up

    assert execution.value(names[9]) == {"k": 1}
    assert execution.looked_up - before <= 6
