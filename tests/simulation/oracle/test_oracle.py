"""Tests of the oracle with known workflows, and of the generator with the rules of the language."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path as File
from typing import Any

import pytest

from tests.simulation.oracle.choices import Choices, Expected
from tests.simulation.oracle.compare import differences, matches, random_choices
from tests.simulation.oracle.document import to_document
from tests.simulation.oracle.evaluate import check_choices, evaluate
from tests.simulation.oracle.expr import ANY, Lit, Ref, ref
from tests.simulation.oracle.generate import random_model
from tests.simulation.oracle.model import (
    Aggregator,
    Edge,
    Edit,
    Effect,
    Fail,
    Merge,
    Model,
    Node,
    Noop,
    Retry,
    Split,
    TokenKey,
    Trigger,
)
from tests.simulation.oracle.read import read_document
from tests.simulation.oracle.validate import problems

CASES = {case["id"]: case for case in json.loads(File(__file__).with_name("cases.json").read_text())}

RACE_WINNERS: dict[str, dict[str, tuple[str, ...]]] = {
    "join-any": {"tail": ("quick",)},
    "context-of-the-winner": {"m": ("quick",), "tail": ("quick",)},
    "merge-any": {"m": ("b",)},
    "merge-at-least": {"m": ("a", "b")},
}
TIMED_OUT = {"merge-timeout": "m", "aggregator-timeout": "g"}

SEEDS = range(2000)


def choices_of(case: str, model: Model) -> Choices:
    """The choices that the waits of a case lead to."""
    opened: dict[TokenKey, tuple[str, ...]] = {
        (join, ()): tuple(edge.id for edge in model.edges if edge.dst == join and edge.src in sources)
        for join, sources in RACE_WINNERS.get(case, {}).items()
    }
    timed_out = TIMED_OUT.get(case)
    return Choices(opened, frozenset({(timed_out, ())}) if timed_out else frozenset())


def matches_case(expected: Any, value: Any) -> bool:
    """Whether a value matches the expectation of a case; error messages are ignored."""
    if value is ANY or expected == "<any>":
        return True
    if isinstance(expected, dict):
        if expected.keys() == {"<subset>"}:
            inner = expected["<subset>"]
            return all(matches_case(v, value.get(k)) for k, v in inner.items() if k != "message")
        return expected.keys() == value.keys() and all(matches_case(v, value[k]) for k, v in expected.items())
    if isinstance(expected, list):
        return (
            isinstance(value, list)
            and len(expected) == len(value)
            and all(map(matches_case, expected, value))
        )
    return matches(expected, value)


def results_by_index(expected: Expected) -> dict[tuple[str, tuple[int, ...]], tuple[str, Any]]:
    return {(name, tuple(i for _, i in path)): result for (name, path), result in expected.results.items()}


@pytest.mark.parametrize("name", sorted(CASES))
def test_known_workflow_evaluates_as_expected(name: str) -> None:
    case = CASES[name]
    model = read_document(case["workflow"], name)
    choices = choices_of(name, model)
    actual = evaluate(model, case.get("input", {}), choices)
    expect = case["expect"]
    assert check_choices(model, actual, choices) == []
    assert actual.status == expect["status"]
    for key, value in expect.get("context", {}).items():
        assert matches_case(value, actual.context[key]), (key, actual.context[key])
    assert not set(expect.get("context_absent", ())) & actual.context.keys()
    if "error" in expect:
        assert actual.error_code == expect["error"]["<subset>"]["code"]
    if "output" in expect:
        assert matches_case(expect["output"], actual.output)
    results = results_by_index(actual)
    for entry in expect.get("nodes", ()):
        status, value = results[(entry["node_id"], tuple(entry.get("index", ())))]
        assert status == entry["status"]
        assert "output" not in entry or matches_case(entry["output"], value)
        assert "error_code" not in entry or value["error"]["code"] in entry["error_code"]
    if not actual.halting:
        ran = Counter(node for (node, _), (status, _) in results.items() if status == "success")
        assert {node: ran[node] for node in expect.get("runs", {})} == expect.get("runs", {})
        assert not [node for node in expect.get("absent_nodes", ()) if ran[node]]


def test_known_workflows_are_complete() -> None:
    assert len(CASES) >= 60


def graph(nodes: dict[str, Node | Any], *edges: str) -> Model:
    """A model from parameters by id and edges written `a>b`, `a!b` (error) or `a:outlet>b`."""
    built = [value if isinstance(value, Node) else Node(name, value) for name, value in nodes.items()]
    wires = []
    for i, text in enumerate(edges):
        is_error = "!" in text
        left, dst = text.split("!" if is_error else ">")
        src, _, outlet = left.partition(":")
        wires.append(Edge(f"e{i}", src, dst, outlet or None, is_error))
    return Model("test", tuple(built), tuple(wires))


def edit(**values: Any) -> Edit:
    """An edit node; plain values become literals."""
    return Edit(tuple((k, v if hasattr(v, "evaluate") else Lit(v)) for k, v in values.items()))


def test_item_error_passes_skipped_inner_split() -> None:
    model = graph(
        {
            "s": Split(Lit([[1], [2]])),
            "x": Effect("x", fail_items=(1,), code="BAD"),
            "t": Split(Lit([7])),
            "y": edit(v=Ref("item")),
            "h": Aggregator(),
            "g": Aggregator(),
        },
        "s>x", "x>t", "t>y", "y>h", "h>g",
    )  # fmt: skip
    actual = evaluate(model, {})
    assert actual.status == "completed"
    assert actual.context["$g"] == [[{"v": 7}], {"error": {"code": "BAD"}}]
    assert actual.results[("y", (("s", 1),))] == ("skipped", None)
    assert actual.results[("y", (("s", 0), ("t", 0)))] == ("success", {"v": 7})


def test_handled_errors_are_not_failed_items() -> None:
    bad = Node("x", Fail("BAD"), error="ignore")
    model = graph({"s": Split(Lit([1, 2])), "x": bad, "g": Aggregator(tolerate=0)}, "s>x", "x>g")
    actual = evaluate(model, {})
    assert actual.context["$g"] == [{"error": {"code": "BAD"}}] * 2


@pytest.mark.parametrize(("tolerate", "status"), [("50%", "completed"), ("49%", "halted"), (1, "completed")])
def test_tolerate_decides_status(tolerate: int | str, status: str) -> None:
    effect = Effect("x", fail_items=(0,))
    model = graph({"s": Split(Lit([1, 2])), "x": effect, "g": Aggregator(tolerate)}, "s>x", "x>g")
    assert evaluate(model, {}).status == status


def test_error_after_aggregator_is_error_before_split() -> None:
    model = graph(
        {
            "f": Node("f", Fail("FIRST"), error="ignore"),
            "s": Split(Lit([1])),
            "x": Node("x", Fail("INNER"), error="ignore"),
            "g": Aggregator(),
            "after": edit(e=ref("error", "code")),
        },
        "f>s", "s>x", "x>g", "g>after",
    )  # fmt: skip
    assert evaluate(model, {}).context["$after"] == {"e": "FIRST"}


def race(**merge: Any) -> Model:
    return graph(
        {
            "start": Trigger(),
            "a": edit(v=1),
            "b": edit(v=2),
            "c": edit(v=3),
            "m": Merge(**merge),
            "after": edit(a=ref("a", "v", default=None), b=ref("b", "v", default=None), m=Ref("m")),
        },
        "start>a", "start>b", "start>c", "b>m", "a>m", "c>m", "m>after",
    )  # fmt: skip


def test_choice_decides_race_and_visible_values() -> None:
    model = race(wait_mode="any")
    choices = Choices({("m", ()): ("e4",)})
    actual = evaluate(model, {}, choices)
    assert actual.context["$after"] == {"a": 1, "b": None, "m": {"v": 1}}
    assert actual.context["$b"] == {"v": 2}
    assert check_choices(model, actual, choices) == []


def test_at_least_merge_orders_payloads_by_edge() -> None:
    model = race(wait_mode="at_least", at_least=2)
    actual = evaluate(model, {}, Choices({("m", ()): ("e4", "e3")}))
    assert actual.context["$m"] == [{"v": 2}, {"v": 1}]


def test_race_without_choice_is_undecided_and_illegal() -> None:
    model = race(wait_mode="any")
    actual = evaluate(model, {})
    assert actual.undecided == {("m", ()), ("after", ())}
    assert check_choices(model, actual, Choices()) != []


@pytest.mark.parametrize("opened", [("e3", "e4"), ("nope",), ("e3", "e3")])
def test_illegal_winners_are_reported(opened: tuple[str, ...]) -> None:
    model = race(wait_mode="any")
    choices = Choices({("m", ()): opened})
    assert check_choices(model, evaluate(model, {}, choices), choices) != []


def test_cancelled_token_outside_region_is_illegal() -> None:
    model = race(wait_mode="any", cancel_losers=True)
    choices = Choices({("m", ()): ("e4",)}, cancelled=frozenset({("b", ())}))
    actual = evaluate(model, {}, choices)
    assert actual.results[("b", ())] == ("cancelled", None)
    assert check_choices(model, actual, choices) == []
    outside = replace(choices, cancelled=frozenset({("after", ())}))
    assert check_choices(model, evaluate(model, {}, outside), outside) != []


def test_timed_out_join_fails_execution() -> None:
    model = race(wait_mode="all", timeout=5)
    actual = evaluate(model, {}, Choices(timed_out=frozenset({("m", ())})))
    assert (actual.status, actual.error_code, actual.halting) == ("failed", "TIMEOUT", {("m", ())})
    assert actual.downstream == {"after"}


@pytest.mark.parametrize(
    ("retry", "outcome"),
    [
        (None, ("failed", 1)),
        (Retry(2), ("failed", 2)),
        (Retry(3), ("success", 3)),
        (Retry(3, on=("OTHER",)), ("failed", 1)),
    ],
)
def test_retry_policy_decides_outcome_and_attempts(retry: Retry | None, outcome: tuple[str, int]) -> None:
    model = graph({"x": Node("x", Effect("x", fail_attempts=2), error="ignore", retry=retry)})
    actual = evaluate(model, {})
    assert (actual.results[("x", ())][0], actual.attempts[("x", ())]) == outcome


def test_effect_outputs_its_payload() -> None:
    model = graph({"start": Trigger(), "p": Noop(), "x": Effect("k")}, "start>p", "p>x")
    assert evaluate(model, {"a": 1}).context["$x"] == {"did": "k", "json": {"a": 1}}


def test_differences_are_reported() -> None:
    model = graph({"start": Trigger(), "a": edit(v=1)}, "start>a")
    actual = evaluate(model, {})
    right = dict(actual.results)
    assert differences(actual, right) == []
    assert len(differences(actual, {**right, ("a", ()): ("success", {"v": 2})})) == 1
    assert len(differences(actual, {**right, ("a", ()): ("skipped", None)})) == 1
    assert len(differences(actual, {**right, ("b", ()): ("success", 1)})) == 1
    assert len(differences(actual, {("start", ()): right[("start", ())]})) == 1


@cache
def generated_models() -> list[tuple[Model, dict[str, Any]]]:
    return [random_model(seed) for seed in SEEDS]


def test_generator_is_deterministic() -> None:
    for seed in SEEDS:
        model, start = generated_models()[seed]
        repeated, repeated_start = random_model(seed)
        assert (model, start) == (repeated, repeated_start)
        assert json.dumps(to_document(model)) == json.dumps(to_document(repeated))


def test_generated_models_are_valid() -> None:
    for seed in SEEDS:
        assert problems(generated_models()[seed][0]) == [], seed


def test_document_round_trip_evaluates_equally() -> None:
    for seed in range(300):
        model, start = generated_models()[seed]
        restored = read_document(to_document(model), model.id)
        choices = random_choices(model, start, seed)
        assert evaluate(restored, start, choices) == evaluate(model, start, choices), seed


def test_evaluations_are_decided_and_legal() -> None:
    for seed in SEEDS:
        model, start = generated_models()[seed]
        choices = random_choices(model, start, seed)
        actual = evaluate(model, start, choices)
        assert check_choices(model, actual, choices) == [], seed
        assert not actual.undecided
        assert differences(actual, actual.results) == []
        assert actual.results.keys() >= {(name, ()) for name in model.shape.members[None]}


def test_generated_documents_are_json() -> None:
    for model, start in generated_models():
        assert json.loads(json.dumps([to_document(model), start])) == [to_document(model), start]


COMMON = [
    "aggregator",
    "batch_size",
    "cancel_losers",
    "conditional:0-arms",
    "conditional:1-arms",
    "conditional:2-arms",
    "depth:1",
    "depth:2",
    "depth:3",
    "error-edge-rejoins",
    "fail",
    "fork",
    "fork-into-aggregator",
    "ignore:leaf",
    "join:all:inside",
    "join:all:outside",
    "join:any:inside",
    "join:any:outside",
    "log",
    "max_in_flight",
    "noop",
    "output",
    "policy:branch",
    "policy:halt",
    "policy:ignore:conditional",
    "policy:ignore:split",
    "policy:ignore:switch",
    "race",
    "retry:runs-out",
    "retry:succeeds",
    "same-source-twice",
    "second-entry",
    "side-branch",
    "split:no-aggregator",
    "split:straight",
    "switch:fallback",
    "switch:no-fallback",
    "timeout:aggregator",
    "timeout:merge",
    "tolerate:count",
    "tolerate:percent",
    "wait",
]
MERGES = [
    f"merge:{mode}:{wait}:{where}"
    for mode in ("append", "object", "combine")
    for wait in ("all", "any", "at_least")
    for where in ("inside", "outside")
]


@pytest.mark.parametrize(("names", "minimum"), [(COMMON, 40), (MERGES, 8)])
def test_generator_produces_every_feature(names: list[str], minimum: int) -> None:
    found = Counter(feature for model, _ in generated_models() for feature in model.features)
    assert {name: found[name] for name in names if found[name] < minimum} == {}


def test_generator_produces_every_ending_and_few_halts() -> None:
    statuses: Counter[str] = Counter()
    codes: Counter[str] = Counter()
    empty = 0
    for seed in SEEDS:
        model, start = generated_models()[seed]
        actual = evaluate(model, start, random_choices(model, start, seed))
        statuses[actual.status] += 1
        codes.update(
            value["error"]["code"] for status, value in actual.results.values() if status == "failed"
        )
        empty += any(value == [] for name, value in actual.context.items() if name != "$trigger")
    assert 10 < statuses["halted"] < 200
    assert statuses["failed"] > 10
    assert min(codes[c] for c in ("EXPRESSION_ERROR", "BOOM", "UNREACHABLE", "TOO_MANY_FAILURES")) >= 20
    assert empty > 40
