"""The `split` node."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rune.core.definition.strict_json import MAX_INT, MIN_INT
from rune.core.execution.outcome import FanOut
from rune.core.limits import LIMITS
from tests.unit.nodes.runner import error, run


@pytest.mark.parametrize("items", [[], [None], [1, "a", {"x": [2]}]])
def test_each_element_becomes_item(items: list[Any]) -> None:
    assert run("split", {"input_array": "$trigger"}, trigger=items) == FanOut(len(items), items)


@given(st.lists(st.integers(MIN_INT, MAX_INT), max_size=40), st.integers(1, 12))
def test_batches_keep_elements_and_order(items: list[int], size: int) -> None:
    outcome = run("split", {"input_array": "$trigger", "batch_size": size}, trigger=items)
    assert isinstance(outcome, FanOut)
    assert outcome.count == len(outcome.value)
    if size == 1:
        assert outcome.value == items
        return
    assert [each for chunk in outcome.value for each in chunk] == items
    assert all(len(chunk) == size for chunk in outcome.value[:-1])
    assert all(0 < len(chunk) <= size for chunk in outcome.value)


@pytest.mark.parametrize("value", [{"a": 1}, "text", 5, None, True])
def test_non_list_input_fails(value: Any) -> None:
    found = error(run("split", {"input_array": "$trigger"}, trigger=value))
    assert found.code == "BAD_PARAMETER"
    assert found.message.startswith("parameters.input_array: a list expected")


def test_items_over_limit_fail() -> None:
    limits = msgspec.structs.replace(LIMITS, items=3)
    assert isinstance(run("split", {"input_array": [1, 2, 3]}, limits=limits), FanOut)
    assert error(run("split", {"input_array": [1, 2, 3, 4]}, limits=limits)).code == "LIMIT_EXCEEDED"
    assert isinstance(run("split", {"input_array": [1] * 6, "batch_size": 2}, limits=limits), FanOut)
