"""The `log` node."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.nodes.runner import error, output, run


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("hello {{ $trigger.name }}", "hello ada"),
        ("plain", "plain"),
        ({"who": "$trigger.name"}, {"who": "ada"}),
        ("cost: $5.00", "cost: $5.00"),
    ],
)
def test_message_is_output(message: Any, expected: Any) -> None:
    assert output(run("log", {"message": message}, trigger={"name": "ada"})) == expected


@pytest.mark.parametrize("value", [[1, {"a": 2}], {"a": None}, 7, 1.5, True, None])
def test_h_h6_message_may_be_any_json(value: Any) -> None:
    # Red if the message is declared as text.
    assert output(run("log", {"message": "$trigger"}, trigger=value)) == value


def test_missing_reference_fails_with_parameter_path() -> None:
    found = error(run("log", {"message": "$trigger.nope"}, trigger={"name": "ada"}))
    assert found.code == "EXPRESSION_ERROR"
    assert "parameters.message" in found.message
    assert "$trigger.nope" in found.message
