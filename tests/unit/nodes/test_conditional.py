"""The `conditional` node."""

from __future__ import annotations

from typing import Any

import pytest

from rune.core.execution.outcome import Output
from tests.unit.nodes.runner import error, output, run

TRIGGER = {"n": 4, "who": "bob", "tags": ["a", "b"], "nil": None, "code": "007"}


def decide(expression: Any, **parameters: Any) -> bool:
    outcome = run("conditional", {"expression": expression, **parameters}, trigger=TRIGGER)
    assert isinstance(outcome, Output)
    assert outcome.outlet == ("true" if outcome.value["result"] else "false")
    return bool(outcome.value["result"])


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("$trigger.n >= 4 and $trigger.n < 5", True),
        ("{{ $trigger.n > 4 }}", False),
        ("$trigger.who", True),
        ("$trigger.nil", False),
        ("$trigger.n - 4", False),
        ("$trigger.tags", True),
        ("0.0", False),
        ("'false'", True),
        (True, True),
        (False, False),
    ],
)
def test_truthiness_of_expression_selects_outlet(expression: Any, expected: bool) -> None:
    assert decide(expression) is expected


@pytest.mark.parametrize(
    ("op1", "operator", "op2", "expected"),
    [
        ("$trigger.n", ">", 3, True),
        ("$trigger.n", "gte", 4.0, True),
        ("$trigger.n", "lt", 4, False),
        ("{{ $trigger.n + 1 }}", "==", 5, True),
        ("$trigger.who", "contains", "bo", True),
        ("$trigger.tags", "contains", "b", True),
        ("a", "in", "$trigger.tags", True),
        ("$trigger.who", "starts_with", "b", True),
        ("$trigger.who", "ends_with", "x", False),
        ("$trigger.who", "matches", "^b.b$", True),
        ("$trigger.nil", "eq", None, True),
        ("$trigger.nil", "neq", False, True),
        ("$trigger.nil", "exists", None, True),
        ("$trigger.absent", "exists", None, False),
        ("$trigger.absent.deeper", "exists", None, False),
        ("$trigger.absent", "exists", False, True),
        ("$gone.x", "exists", None, False),
    ],
)
def test_rule_operator_compares_operands(op1: Any, operator: str, op2: Any, expected: bool) -> None:
    assert decide([{"op1": op1, "operator": operator, "op2": op2}]) is expected


def test_h_g11_text_is_not_compared_as_number() -> None:
    # Red if operands are converted before they are compared.
    assert decide([{"op1": "$trigger.code", "operator": "==", "op2": "7"}]) is False
    assert decide([{"op1": "$trigger.n", "operator": "==", "op2": "4"}]) is False


def test_h_g5_data_is_not_evaluated_as_condition() -> None:
    # Red if a resolved value is compiled again.
    outcome = run("if", {"expression": "$trigger == 'x'"}, trigger="x' or true or '")
    assert output(outcome) == {"result": False}


FALSE_RULE = {"op1": 1, "op2": 2}
TRUE_RULE = {"op1": 1, "op2": 1}


@pytest.mark.parametrize(
    ("rules", "operator", "expected"),
    [
        ([TRUE_RULE, TRUE_RULE], "and", True),
        ([TRUE_RULE, FALSE_RULE], "and", False),
        ([FALSE_RULE, TRUE_RULE], "or", True),
        ([FALSE_RULE, FALSE_RULE], "or", False),
    ],
)
def test_operator_combines_rules(rules: list[Any], operator: str, expected: bool) -> None:
    assert decide(rules, operator=operator) is expected


def test_default_operator_requires_all_rules() -> None:
    assert decide([TRUE_RULE, FALSE_RULE]) is False


FAILING_RULE = {"op1": "$trigger.absent", "operator": "==", "op2": 5}


def test_rules_after_deciding_rule_are_not_evaluated() -> None:
    assert decide([FALSE_RULE, FAILING_RULE], operator="and") is False
    assert decide([TRUE_RULE, FAILING_RULE], operator="or") is True


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("$trigger.absent > 1", "parameters.expression: $trigger.absent"),
        ("$trigger.who > 1", "parameters.expression: "),
        ([TRUE_RULE, FAILING_RULE], "parameters.expression[1].op1: $trigger.absent"),
        ([TRUE_RULE, {"op1": "x", "operator": ">", "op2": 1}], "parameters.expression[1]: "),
        ([{"op1": 1, "op2": "$gone.x"}], "parameters.expression[0].op2: $gone"),
        ([{"op1": "x", "operator": "matches", "op2": "("}], "parameters.expression[0]: "),
    ],
)
def test_failing_condition_fails_node_with_path(expression: Any, message: str) -> None:
    found = error(run("conditional", {"expression": expression}, trigger=TRIGGER))
    assert found.code == "EXPRESSION_ERROR"
    assert found.message.startswith(message)
