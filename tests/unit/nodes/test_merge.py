"""merge."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.nodes.running import error, output, run

A = {"k": "a", "only_a": 1, "deep": {"a": 1}}
B = {"k": "b", "only_b": 2, "deep": {"b": 2}}


def merge(arrivals: list[tuple[str, Any]], **parameters: Any) -> Any:
    return run("merge", parameters, arrivals=lambda: list(arrivals))


def test_append_lists_the_payloads_in_edge_order() -> None:
    assert output(merge([("b", B), ("a", A), ("c", None)])) == [B, A, None]


def test_object_names_them_by_predecessor() -> None:
    assert output(merge([("b", B), ("a", [1])], mode="object")) == {"b": B, "a": [1]}


def test_h_e8_combine_unites_and_the_later_edge_wins() -> None:
    # Red if the earlier payload wins, or if inner objects are united too.
    expected = {"k": "a", "only_a": 1, "only_b": 2, "deep": {"a": 1}}
    assert output(merge([("b", B), ("a", A)], mode="combine")) == expected


def test_combine_leaves_the_payloads_alone() -> None:
    first = {"x": 1}
    merge([("a", first), ("b", {"x": 2, "y": 3})], mode="combine")
    assert first == {"x": 1}


@pytest.mark.parametrize("payload", [[1], "text", None, 3])
def test_combine_refuses_what_is_no_object(payload: Any) -> None:
    found = error(merge([("a", A), ("b", payload)], mode="combine"))
    assert found.code == "NOT_AN_OBJECT"
    assert "`b`" in found.message


@pytest.mark.parametrize("mode", ["append", "object", "combine"])
def test_the_first_of_a_race_is_the_output_in_every_mode(mode: str) -> None:
    assert output(merge([("b", [1])], mode=mode, wait_mode="wait_for_any")) == [1]


def test_at_least_gives_the_payloads_so_far() -> None:
    assert output(merge([("a", A), ("b", B)], wait_mode={"at_least": 2})) == [A, B]
