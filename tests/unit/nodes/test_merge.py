"""The `merge` node."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.nodes.runner import error, output, run

A = {"k": "a", "only_a": 1, "deep": {"a": 1}}
B = {"k": "b", "only_b": 2, "deep": {"b": 2}}


def merge(arrivals: list[tuple[str, Any]], **parameters: Any) -> Any:
    payload = dict(arrivals) if len(arrivals) > 1 else arrivals[0][1]
    return run("merge", parameters, payload=payload, arrivals=lambda: list(arrivals))


def test_append_lists_payloads_in_edge_order() -> None:
    assert output(merge([("b", B), ("a", A), ("c", None)])) == [B, A, None]


def test_object_maps_predecessors_to_payloads() -> None:
    assert output(merge([("b", B), ("a", [1])], mode="object")) == {"b": B, "a": [1]}


def test_h_e8_combine_prefers_later_edge() -> None:
    # Red if the earlier payload wins, or if inner objects are merged.
    expected = {"k": "a", "only_a": 1, "only_b": 2, "deep": {"a": 1}}
    assert output(merge([("b", B), ("a", A)], mode="combine")) == expected


def test_combine_does_not_modify_payloads() -> None:
    first = {"x": 1}
    merge([("a", first), ("b", {"x": 2, "y": 3})], mode="combine")
    assert first == {"x": 1}


@pytest.mark.parametrize("payload", [[1], "text", None, 3])
def test_combine_of_non_object_fails(payload: Any) -> None:
    found = error(merge([("a", A), ("b", payload)], mode="combine"))
    assert found.code == "NOT_AN_OBJECT"
    assert "`b`" in found.message


@pytest.mark.parametrize("mode", ["append", "object", "combine"])
def test_race_winner_is_output_in_every_mode(mode: str) -> None:
    assert output(merge([("b", [1])], mode=mode, wait_mode="wait_for_any")) == [1]


def test_at_least_outputs_arrived_payloads() -> None:
    assert output(merge([("a", A), ("b", B)], wait_mode={"at_least": 2})) == [A, B]
