"""The `output` node."""

from __future__ import annotations

from tests.unit.nodes.runner import error, output, run


def test_value_is_output() -> None:
    assert output(run("output", {"value": "{{ $trigger.x + 1 }}"}, trigger={"x": 41})) == 42


def test_null_value_is_output() -> None:
    assert output(run("output", {"value": None}, payload={"x": 1})) is None


def test_payload_is_output_without_value() -> None:
    assert output(run("output", payload={"x": 1})) == {"x": 1}


def test_value_nested_too_deep_fails() -> None:
    deep: object = 0
    for _ in range(100):
        deep = [deep]
    assert output(run("output", {"value": "$trigger"}, trigger=deep)) == deep
    assert error(run("output", {"value": ["$trigger"]}, trigger=deep)).code == "LIMIT_EXCEEDED"
