"""output."""

from __future__ import annotations

from tests.unit.nodes.running import error, output, run


def test_the_value_is_the_output() -> None:
    assert output(run("output", {"value": "{{ $trigger.x + 1 }}"}, trigger={"x": 41})) == 42


def test_null_is_a_value() -> None:
    assert output(run("output", {"value": None}, payload={"x": 1})) is None


def test_without_a_value_it_is_the_payload() -> None:
    assert output(run("output", payload={"x": 1})) == {"x": 1}


def test_what_nests_too_deep_does_not_leave() -> None:
    deep: object = 0
    for _ in range(100):
        deep = [deep]
    assert output(run("output", {"value": "$trigger"}, trigger=deep)) == deep
    assert error(run("output", {"value": ["$trigger"]}, trigger=deep)).code == "LIMIT_EXCEEDED"
