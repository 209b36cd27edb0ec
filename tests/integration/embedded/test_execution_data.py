"""Cached values of an execution are bounded and dropped when it has ended."""

from __future__ import annotations

from typing import Any

import msgspec

from rune.codec.facts import Inline
from rune.core.execution.fact import NodeResult
from rune.runtime.values import MAX_KNOWN_VALUES, Cache, ExecutionData


def execution_data(cache: Cache, id: str) -> ExecutionData:
    accepted: Any = msgspec.defstruct("Accepted", ["id", "workflow"])(id, "w")
    nothing: Any = None
    return ExecutionData(accepted, nothing, nothing, nothing, cache)


def result(node: int) -> NodeResult:
    return NodeResult(node, (), 1, "ok", value=Inline(b"1"))


def test_forget_drops_values_of_one_execution_only() -> None:
    cache = Cache(1_000_000)
    ended, other = execution_data(cache, "ended"), execution_data(cache, "other")
    for each in (ended, other):
        each.cache_result(result(1))
        each.cache_decoded(result(1), 1, 1)
        each.cache_page(f"{each.accepted.id}/items/0", [1], 1)
    before = cache._size
    ended.forget()
    assert (ended.cached_result(1, ()), ended.decoded(1, ()), ended.item_page("ended/items/0")) == (
        None,
        None,
        None,
    )
    assert (other.cached_result(1, ()), other.decoded(1, ())) == (result(1), 1)
    assert cache._size == before / 2


def test_known_values_are_bounded() -> None:
    cache = Cache(10_000_000)
    long = execution_data(cache, "long")
    for node in range(3 * MAX_KNOWN_VALUES):
        long.cache_result(result(node))
    assert len(long._keys) == MAX_KNOWN_VALUES
    long.forget()
    assert long.cached_result(0, ()) is None
    assert long.cached_result(3 * MAX_KNOWN_VALUES - 1, ()) is not None, (
        "it is evicted only when the cache is full"
    )
