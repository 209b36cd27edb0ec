"""The `switch` node."""

from __future__ import annotations

from typing import Any

import pytest

from rune.core.execution.outcome import Output
from rune.nodes.registry import standard_registry
from tests.unit.nodes.runner import error, run

RULES = [
    {"value": "$trigger.p", "operator": "==", "compare": "high"},
    {"value": "$trigger.p", "operator": "==", "compare": "low"},
    {"value": "$trigger.p", "operator": "starts_with", "compare": "l"},
]


def route(rules: list[Any], trigger: Any) -> tuple[str | None, Any]:
    outcome = run("switch", {"rules": rules}, trigger=trigger)
    assert isinstance(outcome, Output), outcome
    return outcome.outlet, outcome.value


@pytest.mark.parametrize(("p", "index"), [("high", 0), ("low", 1), ("later", 2)])
def test_first_matching_rule_selects_outlet(p: str, index: int) -> None:
    outlet, value = route(RULES, {"p": p})
    assert outlet == f"case_{index}"
    assert value["output_index"] == index
    assert value["matched_rule"] == {
        "value": p,
        "operator": RULES[index]["operator"],
        "compare": RULES[index]["compare"],
    }


def test_no_matching_rule_selects_fallback() -> None:
    assert route(RULES, {"p": "urgent"}) == ("fallback", {"output_index": 3, "matched_rule": None})


def test_default_operator_is_equality() -> None:
    assert route([{"value": "$trigger", "compare": 5.0}], 5)[0] == "case_0"


def test_exists_operator_matches_missing_value() -> None:
    rules = [{"value": "$trigger.a", "operator": "exists"}, {"value": "$trigger.b", "operator": "exists"}]
    assert route(rules, {"b": None})[0] == "case_1"
    assert route(rules, {})[0] == "fallback"
    gone = [{"value": "$trigger.a", "operator": "exists", "compare": False}]
    assert route(gone, {}) == (
        "case_0",
        {"output_index": 0, "matched_rule": {"value": None, "operator": "exists", "compare": False}},
    )


def test_rules_after_match_are_not_evaluated() -> None:
    rules = [{"value": 1, "compare": 1}, {"value": "$trigger.absent", "compare": 1}]
    assert route(rules, {})[0] == "case_0"


def test_failing_rule_fails_node_with_path() -> None:
    rules = [{"value": 1, "compare": 2}, {"value": "$trigger.absent", "compare": 1}]
    found = error(run("switch", {"rules": rules}, trigger={}))
    assert found.code == "EXPRESSION_ERROR"
    assert found.message.startswith("parameters.rules[1].value: $trigger.absent")


@pytest.mark.parametrize(
    ("type", "parameters", "path"),
    [
        ("switch", {"rules": [{"value": 1, "operator": "$trigger.op"}]}, "rules[0].operator"),
        ("switch", {"rules": "$trigger.rules"}, "rules"),
        ("conditional", {"expression": [{"op1": 1, "operator": "$trigger"}]}, "expression[0].operator"),
    ],
)
def test_expression_in_place_of_rule_or_operator_is_rejected(
    type: str, parameters: dict[str, Any], path: str
) -> None:
    found = standard_registry()[type].type.check(parameters, lambda text: "$" in text)
    assert [each.path for each in found] == [path]
