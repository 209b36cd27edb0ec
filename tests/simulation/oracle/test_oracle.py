"""The oracle against known workflows, and the generator against the rules of the language."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path as File
from typing import Any

import pytest

from tests.simulation.oracle.choices import Choices, Expected
from tests.simulation.oracle.compare import agree, differences, free_choices
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

WINNERS: dict[str, dict[str, tuple[str, ...]]] = {
    "join-any": {"tail": ("quick",)},
    "context-of-the-winner": {"m": ("quick",), "tail": ("quick",)},
    "merge-any": {"m": ("b",)},
    "merge-at-least": {"m": ("a", "b")},
}
TIMED_OUT = {"merge-timeout": "m", "aggregator-timeout": "g"}

SEEDS = range(2000)


def choices_of(case: str, model: Model) -> Choices:
    """What the waits of a case decide, as edges."""
    opened: dict[TokenKey, tuple[str, ...]] = {
        (join, ()): tuple(edge.id for edge in model.edges if edge.dst == join and edge.src in sources)
        for join, sources in WINNERS.get(case, {}).items()
    }
    late = TIMED_OUT.get(case)
    return Choices(opened, frozenset({(late, ())}) if late else frozenset())


def fits(wanted: Any, value: Any) -> bool:
    """Whether a value is what a case asks for; error messages are not asked."""
    if value is ANY or wanted == "<any>":
        return True
    if isinstance(wanted, dict):
        if wanted.keys() == {"<subset>"}:
            inner = wanted["<subset>"]
            return all(fits(v, value.get(k)) for k, v in inner.items() if k != "message")
        return wanted.keys() == value.keys() and all(fits(v, value[k]) for k, v in wanted.items())
    if isinstance(wanted, list):
        return isinstance(value, list) and len(wanted) == len(value) and all(map(fits, wanted, value))
    return agree(wanted, value)


def by_indices(expected: Expected) -> dict[tuple[str, tuple[int, ...]], tuple[str, Any]]:
    return {(name, tuple(i for _, i in path)): result for (name, path), result in expected.results.items()}


@pytest.mark.parametrize("name", sorted(CASES))
def test_known_workflow(name: str) -> None:
    case = CASES[name]
    model = read_document(case["workflow"], name)
    choices = choices_of(name, model)
    got = evaluate(model, case.get("input", {}), choices)
    want = case["expect"]
    assert check_choices(model, got, choices) == []
    assert got.status == want["status"]
    for key, value in want.get("context", {}).items():
        assert fits(value, got.context[key]), (key, got.context[key])
    assert not set(want.get("context_absent", ())) & got.context.keys()
    if "error" in want:
        assert got.error_code == want["error"]["<subset>"]["code"]
    if "output" in want:
        assert fits(want["output"], got.output)
    results = by_indices(got)
    for entry in want.get("nodes", ()):
        status, value = results[(entry["node_id"], tuple(entry.get("index", ())))]
        assert status == entry["status"]
        assert "output" not in entry or fits(entry["output"], value)
        assert "error_code" not in entry or value["error"]["code"] in entry["error_code"]
    if not got.halting:
        ran = Counter(node for (node, _), (status, _) in results.items() if status == "success")
        assert {node: ran[node] for node in want.get("runs", {})} == want.get("runs", {})
        assert not [node for node in want.get("absent_nodes", ()) if ran[node]]


def test_all_known_workflows_are_there() -> None:
    assert len(CASES) >= 60


def graph(nodes: dict[str, Node | Any], *edges: str) -> Model:
    """A model from parameters by id and edges written `a>b`, `a!b` (error) or `a:outlet>b`."""
    made = [value if isinstance(value, Node) else Node(name, value) for name, value in nodes.items()]
    wires = []
    for i, text in enumerate(edges):
        is_error = "!" in text
        left, dst = text.split("!" if is_error else ">")
        src, _, outlet = left.partition(":")
        wires.append(Edge(f"e{i}", src, dst, outlet or None, is_error))
    return Model("hand", tuple(made), tuple(wires))


def says(**values: Any) -> Edit:
    """An edit; plain values are literals."""
    return Edit(tuple((k, v if hasattr(v, "evaluate") else Lit(v)) for k, v in values.items()))


def test_error_of_an_item_travels_through_a_skipped_inner_split() -> None:
    model = graph(
        {
            "s": Split(Lit([[1], [2]])),
            "x": Effect("x", fail_items=(1,), code="BAD"),
            "t": Split(Lit([7])),
            "y": says(v=Ref("item")),
            "h": Aggregator(),
            "g": Aggregator(),
        },
        "s>x", "x>t", "t>y", "y>h", "h>g",
    )  # fmt: skip
    got = evaluate(model, {})
    assert got.status == "completed"
    assert got.context["$g"] == [[{"v": 7}], {"error": {"code": "BAD"}}]
    assert got.results[("y", (("s", 1),))] == ("skipped", None)
    assert got.results[("y", (("s", 0), ("t", 0)))] == ("success", {"v": 7})


def test_handled_errors_do_not_count_as_failed_items() -> None:
    bad = Node("x", Fail("BAD"), error="ignore")
    model = graph({"s": Split(Lit([1, 2])), "x": bad, "g": Aggregator(tolerate=0)}, "s>x", "x>g")
    got = evaluate(model, {})
    assert got.context["$g"] == [{"error": {"code": "BAD"}}] * 2


@pytest.mark.parametrize(("tolerate", "status"), [("50%", "completed"), ("49%", "halted"), (1, "completed")])
def test_tolerated_share(tolerate: int | str, status: str) -> None:
    effect = Effect("x", fail_items=(0,))
    model = graph({"s": Split(Lit([1, 2])), "x": effect, "g": Aggregator(tolerate)}, "s>x", "x>g")
    assert evaluate(model, {}).status == status


def test_error_behind_the_aggregator_is_the_one_before_the_split() -> None:
    model = graph(
        {
            "f": Node("f", Fail("FIRST"), error="ignore"),
            "s": Split(Lit([1])),
            "x": Node("x", Fail("INNER"), error="ignore"),
            "g": Aggregator(),
            "after": says(e=ref("error", "code")),
        },
        "f>s", "s>x", "x>g", "g>after",
    )  # fmt: skip
    assert evaluate(model, {}).context["$after"] == {"e": "FIRST"}


def race(**merge: Any) -> Model:
    return graph(
        {
            "start": Trigger(),
            "a": says(v=1),
            "b": says(v=2),
            "c": says(v=3),
            "m": Merge(**merge),
            "after": says(a=ref("a", "v", default=None), b=ref("b", "v", default=None), m=Ref("m")),
        },
        "start>a", "start>b", "start>c", "b>m", "a>m", "c>m", "m>after",
    )  # fmt: skip


def test_the_choice_decides_a_race_and_what_is_seen_behind_it() -> None:
    model = race(wait_mode="any")
    choices = Choices({("m", ()): ("e4",)})
    got = evaluate(model, {}, choices)
    assert got.context["$after"] == {"a": 1, "b": None, "m": {"v": 1}}
    assert got.context["$b"] == {"v": 2}
    assert check_choices(model, got, choices) == []


def test_two_of_three_come_in_edge_order() -> None:
    model = race(wait_mode="at_least", at_least=2)
    got = evaluate(model, {}, Choices({("m", ()): ("e4", "e3")}))
    assert got.context["$m"] == [{"v": 2}, {"v": 1}]


def test_a_race_without_a_choice_is_undecided_and_illegal() -> None:
    model = race(wait_mode="any")
    got = evaluate(model, {})
    assert got.undecided == {("m", ()), ("after", ())}
    assert check_choices(model, got, Choices()) != []


@pytest.mark.parametrize("opened", [("e3", "e4"), ("nope",), ("e3", "e3")])
def test_illegal_winners_are_found(opened: tuple[str, ...]) -> None:
    model = race(wait_mode="any")
    choices = Choices({("m", ()): opened})
    assert check_choices(model, evaluate(model, {}, choices), choices) != []


def test_cancelled_losers_are_legal_only_in_the_region_of_an_open_join() -> None:
    model = race(wait_mode="any", cancel_losers=True)
    choices = Choices({("m", ()): ("e4",)}, cancelled=frozenset({("b", ())}))
    got = evaluate(model, {}, choices)
    assert got.results[("b", ())] == ("cancelled", None)
    assert check_choices(model, got, choices) == []
    outside = replace(choices, cancelled=frozenset({("after", ())}))
    assert check_choices(model, evaluate(model, {}, outside), outside) != []


def test_a_timed_out_join_fails_the_execution() -> None:
    model = race(wait_mode="all", timeout=5)
    got = evaluate(model, {}, Choices(timed_out=frozenset({("m", ())})))
    assert (got.status, got.error_code, got.halting) == ("failed", "TIMEOUT", {("m", ())})
    assert got.shadow == {"after"}


@pytest.mark.parametrize(
    ("retry", "outcome"),
    [
        (None, ("failed", 1)),
        (Retry(2), ("failed", 2)),
        (Retry(3), ("success", 3)),
        (Retry(3, on=("OTHER",)), ("failed", 1)),
    ],
)
def test_retries(retry: Retry | None, outcome: tuple[str, int]) -> None:
    model = graph({"x": Node("x", Effect("x", fail_attempts=2), error="ignore", retry=retry)})
    got = evaluate(model, {})
    assert (got.results[("x", ())][0], got.attempts[("x", ())]) == outcome


def test_an_effect_repeats_what_entered_it() -> None:
    model = graph({"start": Trigger(), "p": Noop(), "x": Effect("k")}, "start>p", "p>x")
    assert evaluate(model, {"a": 1}).context["$x"] == {"did": "k", "json": {"a": 1}}


def test_differences_are_found() -> None:
    model = graph({"start": Trigger(), "a": says(v=1)}, "start>a")
    got = evaluate(model, {})
    right = dict(got.results)
    assert differences(got, right) == []
    assert len(differences(got, {**right, ("a", ()): ("success", {"v": 2})})) == 1
    assert len(differences(got, {**right, ("a", ()): ("skipped", None)})) == 1
    assert len(differences(got, {**right, ("b", ()): ("success", 1)})) == 1
    assert len(differences(got, {("start", ()): right[("start", ())]})) == 1


@cache
def population() -> list[tuple[Model, dict[str, Any]]]:
    return [random_model(seed) for seed in SEEDS]


def test_the_generator_is_deterministic() -> None:
    for seed in SEEDS:
        model, start = population()[seed]
        again, start_again = random_model(seed)
        assert (model, start) == (again, start_again)
        assert json.dumps(to_document(model)) == json.dumps(to_document(again))


def test_generated_models_are_valid() -> None:
    for seed in SEEDS:
        assert problems(population()[seed][0]) == [], seed


def test_documents_read_back_to_the_same_meaning() -> None:
    for seed in range(300):
        model, start = population()[seed]
        back = read_document(to_document(model), model.id)
        choices = free_choices(model, start, seed)
        assert evaluate(back, start, choices) == evaluate(model, start, choices), seed


def test_evaluations_are_decided_and_legal() -> None:
    for seed in SEEDS:
        model, start = population()[seed]
        choices = free_choices(model, start, seed)
        got = evaluate(model, start, choices)
        assert check_choices(model, got, choices) == [], seed
        assert not got.undecided
        assert differences(got, got.results) == []
        assert got.results.keys() >= {(name, ()) for name in model.shape.members[None]}


def test_documents_are_json() -> None:
    for model, start in population():
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


@pytest.mark.parametrize(("names", "least"), [(COMMON, 40), (MERGES, 8)])
def test_every_shape_occurs(names: list[str], least: int) -> None:
    found = Counter(feature for model, _ in population() for feature in model.features)
    assert {name: found[name] for name in names if found[name] < least} == {}


def test_every_ending_occurs_and_halts_are_rare() -> None:
    statuses: Counter[str] = Counter()
    codes: Counter[str] = Counter()
    empty = 0
    for seed in SEEDS:
        model, start = population()[seed]
        got = evaluate(model, start, free_choices(model, start, seed))
        statuses[got.status] += 1
        codes.update(value["error"]["code"] for status, value in got.results.values() if status == "failed")
        empty += any(value == [] for name, value in got.context.items() if name != "$trigger")
    assert 10 < statuses["halted"] < 200
    assert statuses["failed"] > 10
    assert min(codes[c] for c in ("EXPRESSION_ERROR", "BOOM", "UNREACHABLE", "TOO_MANY_FAILURES")) >= 20
    assert empty > 40
