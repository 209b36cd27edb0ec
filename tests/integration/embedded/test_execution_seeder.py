"""Definitions and facts of executions that start at an inner node."""

from __future__ import annotations

from typing import Any

import pytest

from rune.core.execution.fact import NodeResult
from rune.core.execution.stored_value import Inline
from rune.core.execution.token import START, Ref
from rune.core.plan.model import Plan
from rune.nodes.registry import full_registry
from rune.runtime.messaging.seeder import ExecutionSeeder
from rune.testing.harness import compiled
from tests.support.documents import document, edit, node

REGISTRY = full_registry(())
DIAMOND = document(
    [
        node("start", "manual"),
        edit("a", 1),
        edit("b", 2),
        edit("c", 3),
        node("both", "merge", {"wait_mode": "wait_for_all"}),
        edit("end", 4),
    ],
    "start>a",
    "a>b",
    "a>c",
    "a>both",
    "b>both",
    "c>both",
    "both>end",
)


def _seeded(raw: dict[str, Any], first: str, *given: str) -> tuple[Plan, list[NodeResult], bool]:
    plan = compiled(raw, REGISTRY)
    seeding = ExecutionSeeder(plan, plan.index[first], dict.fromkeys(given, b"1"))
    made = seeding.compile(REGISTRY.catalogue)
    facts = seeding.facts(made, {name: Inline(b"1") for name in given}, 5)
    results = [each for each in facts if isinstance(each, NodeResult)]
    return made, results, seeding.starts_at_first(made, facts, 5)


@pytest.mark.parametrize(
    ("first", "given"),
    [("b", ("a",)), ("b", ()), ("c", ("a", "b")), ("both", ("b", "c")), ("both", ()), ("end", ("a", "both"))],
)
def test_only_first_node_is_ready(first: str, given: tuple[str, ...]) -> None:
    _, _, begins = _seeded(DIAMOND, first, *given)
    assert begins


def test_edges_from_unreached_nodes_are_removed() -> None:
    made, _, _ = _seeded(DIAMOND, "b", "a")
    into = {made.ids[made.src[edge]] for edge in made.nodes[made.index["both"]].in_edges}
    assert into == {"b"}


def test_nodes_without_output_are_skipped() -> None:
    made, results, _ = _seeded(DIAMOND, "b", "a")
    assert {made.ids[each.node]: each.status for each in results} == {"a": "ok", "c": "skipped"}


def test_payload_is_output_of_predecessor() -> None:
    made, results, _ = _seeded(DIAMOND, "b", "a")
    (held,) = [each for each in results if each.status == "ok"]
    assert held.payload == Ref("result", made.index["a"], ())


def test_payload_after_routing_node_is_its_input() -> None:
    raw = document(
        [node("start", "manual"), edit("a", 1), node("pause", "log", {"message": "x"}), edit("b", 2)],
        "start>a",
        "a>pause",
        "pause>b",
    )
    made, results, begins = _seeded(raw, "b", "a", "pause")
    last = next(each for each in results if made.ids[each.node] == "pause")
    assert begins
    assert last.payload == Ref("result", made.index["a"], ())


def test_payload_without_predecessor_output_is_start_or_given() -> None:
    made, results, begins = _seeded(DIAMOND, "end", "c")
    last = next(each for each in results if made.ids[each.node] == "c")
    assert begins
    assert last.payload in (START, Ref("result", made.index["c"], ()))


def test_same_seeding_compiles_to_same_hash() -> None:
    assert _seeded(DIAMOND, "b", "a")[0].hash == _seeded(DIAMOND, "b", "a")[0].hash
