"""Cached values of an execution are bounded and dropped when it has ended."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from rune.codec.facts import Inline
from rune.core.execution.fact import NodeResult
from rune.ports.journal import ExecutionRecord
from rune.runtime import values
from rune.runtime.values import Cache, ExecutionData, ExecutionDataCache


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
    before = cache.size
    ended.forget()
    assert (ended.cached_result(1, ()), ended.decoded(1, ()), ended.item_page("ended/items/0")) == (
        None,
        None,
        None,
    )
    assert (other.cached_result(1, ()), other.decoded(1, ())) == (result(1), 1)
    assert cache.size == before / 2


def test_forget_drops_values_of_wide_execution() -> None:
    cache = Cache(10_000_000)
    wide = execution_data(cache, "wide")
    for node in range(5_000):
        wide.cache_result(result(node))
    wide.forget()
    assert (cache.size, wide.cached_result(4_999, ())) == (0, None)


def test_full_cache_evicts_oldest_values() -> None:
    cache = Cache(50_000)
    long = execution_data(cache, "long")
    for node in range(1_000):
        long.cache_result(result(node))
    assert cache.size <= 50_000
    assert (long.cached_result(0, ()), long.cached_result(999, ())) == (None, result(999))
    long.forget()
    assert cache.size == 0


def data_cache() -> ExecutionDataCache:
    nothing: Any = None
    return ExecutionDataCache(nothing, nothing, nothing, nothing)


def open_execution(cache: ExecutionDataCache, id: str, input: bytes = b"{}") -> ExecutionData:
    nothing: Any = None
    return cache.open(ExecutionRecord(id=id, workflow="w", hash="h", at=0, input=input), nothing)


def test_idle_executions_leave_the_cache_with_their_values(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1_000.0
    monkeypatch.setattr("rune.runtime.values.time.monotonic", lambda: now)
    cache = data_cache()
    for number in range(100):
        open_execution(cache, f"idle{number}").cache_result(result(1))
    now += values.IDLE_S + 1
    open_execution(cache, "new")
    assert (len(cache), cache.value_bytes) == (1, 0)


def test_start_payloads_in_the_cache_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(values, "MAX_CACHED_INPUT_BYTES", 10_000)
    cache = data_cache()
    for number in range(100):
        open_execution(cache, f"x{number}", b"x" * 1_000)
    assert len(cache) == 10
