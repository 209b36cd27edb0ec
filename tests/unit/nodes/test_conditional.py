"""conditional."""

from __future__ import annotations

from typing import Any

import pytest

from rune.core.execution.outcome import Output
from tests.unit.nodes.running import error, output, run

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
def test_an_expression_decides_by_its_truth(expression: Any, expected: bool) -> None:
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
def test_a_rule_compares(op1: Any, operator: str, op2: Any, expected: bool) -> None:
    assert decide([{"op1": op1, "operator": operator, "op2": op2}]) is expected


def test_h_g11_text_is_never_compared_as_a_number() -> None:
    # Red if sides are converted before they are compared.
    assert decide([{"op1": "$trigger.code", "operator": "==", "op2": "7"}]) is False
    assert decide([{"op1": "$trigger.n", "operator": "==", "op2": "4"}]) is False


def test_h_g5_data_is_never_read_as_a_condition() -> None:
    # Red if a resolved value is compiled again.
    outcome = run("if", {"expression": "$trigger == 'x'"}, trigger="x' or true or '")
    assert output(outcome) == {"result": False}


NO = {"op1": 1, "op2": 2}
HOLDS = {"op1": 1, "op2": 1}


@pytest.mark.parametrize(
    ("rules", "operator", "expected"),
    [
        ([HOLDS, HOLDS], "and", True),
        ([HOLDS, NO], "and", False),
        ([NO, HOLDS], "or", True),
        ([NO, NO], "or", False),
    ],
)
def test_rules_are_joined(rules: list[Any], operator: str, expected: bool) -> None:
    assert decide(rules, operator=operator) is expected


def test_all_rules_must_hold_unless_told_otherwise() -> None:
    assert decide([HOLDS, NO]) is False


BROKEN = {"op1": "$trigger.absent", "operator": "==", "op2": 5}


def test_what_comes_after_the_rule_that_decides_is_not_evaluated() -> None:
    assert decide([NO, BROKEN], operator="and") is False
    assert decide([HOLDS, BROKEN], operator="or") is True


@pytest.mark.parametrize(
    ("expression", "told"),
    [
        ("$trigger.absent > 1", "parameters.expression: $trigger.absent"),
        ("$trigger.who > 1", "parameters.expression: "),
        ([HOLDS, BROKEN], "parameters.expression[1].op1: $trigger.absent"),
        ([HOLDS, {"op1": "x", "operator": ">", "op2": 1}], "parameters.expression[1]: "),
        ([{"op1": 1, "op2": "$gone.x"}], "parameters.expression[0].op2: $gone"),
        ([{"op1": "x", "operator": "matches", "op2": "("}], "parameters.expression[0]: "),
    ],
)
def test_a_condition_that_cannot_be_evaluated_fails_and_says_where(expression: Any, told: str) -> None:
    found = error(run("conditional", {"expression": expression}, trigger=TRIGGER))
    assert found.code == "EXPRESSION_ERROR"
    assert found.message.startswith(told)
