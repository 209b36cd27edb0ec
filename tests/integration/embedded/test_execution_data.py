"""Cached values of an execution are bounded and dropped when it has ended."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rune.core.execution import joins
from rune.core.execution.fact import NodeResult
from rune.core.execution.outcome import Error
from rune.core.execution.stored_value import Inline, Large
from rune.ports.journal import ExecutionRecord
from rune.runtime.execution_data import IDLE_S, KEPT_PAGES, ExecutionData, ExecutionDataCache
from rune.runtime.value_cache import Cache
from rune.runtime.value_reader import ValueReader
from rune.runtime.value_refs import PagesRef
from rune.testing.harness import harness
from tests.support.workflows import edit, of_type, split, workflow


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
        each.cache_page(f"{each.accepted.id}/items", 0, [1], 1)
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
    return cache.open(ExecutionRecord(id=id, workflow="w", hash="h", at=0, input=Inline(input)), nothing)


def test_idle_executions_leave_the_cache_with_their_values(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1_000.0
    monkeypatch.setattr("rune.runtime.execution_data.time.monotonic", lambda: now)
    cache = data_cache()
    for number in range(100):
        open_execution(cache, f"idle{number}").cache_result(result(1))
    now += IDLE_S + 1
    open_execution(cache, "new")
    assert (len(cache), cache.value_bytes) == (1, 0)


def test_start_payloads_in_the_cache_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rune.runtime.execution_data.MAX_CACHED_INPUT_BYTES", 10_000)
    cache = data_cache()
    for number in range(100):
        open_execution(cache, f"x{number}", b"x" * 1_000)
    assert len(cache) == 10


def test_aggregator_of_more_items_than_are_cached_reads_each_of_them_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its reader goes on behind a value that had to be loaded, and keeps no result of the journal."""
    items = 2_000
    read: list[int] = []
    most = 0
    monkeypatch.setattr("rune.runtime.execution_data.CACHE_BYTES", 50_000)
    monkeypatch.setattr("rune.runtime.value_reader.MAX_PREFETCHED", 64)
    original = ValueReader.result

    def item_entry(plan: Any, aggregator: Any, path: Any, item: int, results: Any) -> Any:
        found = joins.item_entry(plan, aggregator, path, item, results)
        read.append(item)
        return found

    def result_of(self: ValueReader, node: int, path: Any) -> Any:
        nonlocal most
        most = max(most, len(self.fetched))
        return original(self, node, path)

    monkeypatch.setattr("rune.runtime.value_reader.item_entry", item_entry)
    monkeypatch.setattr(ValueReader, "result", result_of)
    document = workflow(
        "start>s s>a a>g g>out",
        s=split(),
        a=edit(v="{{ $item }}"),
        g=of_type("aggregator"),
        out=of_type("output", value="{{ len($g) }}"),
    )

    async def go() -> tuple[str, int]:
        async with harness(tmp_path) as engine:
            run = await engine.start(document, {"items": list(range(items))})
            return (await run.end()).status, most

    status, fetched = asyncio.run(go())
    assert status == "completed"
    assert read == list(range(items))
    assert fetched <= 2 * 64


def test_aggregator_of_items_behind_the_window_loads_their_pages_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each load makes the aggregator start over, so that their number must not grow with the number of items."""
    monkeypatch.setattr("rune.runtime.execution_data.KEPT_PAGES", 2)
    loads: list[range] = []
    load = ExecutionData.load

    async def count(self: ExecutionData, what: Any, reader: ValueReader) -> None:
        if isinstance(what, PagesRef) and len(reader._collected or ()):
            loads.append(what.numbers)
        await load(self, what, reader)

    monkeypatch.setattr(ExecutionData, "load", count)
    document = workflow(
        "start>s s>a a>g g>out",
        s=split(),
        a=of_type("noop"),
        g=of_type("aggregator"),
        out=of_type("output", value="{{ sum($g) }}"),
    )
    items = list(range(20 * 256))

    async def go() -> Any:
        async with harness(tmp_path) as engine:
            run = await engine.start(document, {"items": items})
            await run.end(120)
            return (await run.document())["output"]

    assert asyncio.run(go()) == sum(items)
    assert 1 <= len(loads) <= 6


def _memory_at_aggregator(folder: Path, items: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """Return the bytes that the engine uses when the aggregator has collected a fan-out of this many items."""
    found: list[int] = []
    store_output = ExecutionData.store_output

    async def measure(self: ExecutionData, node: int, path: Any, value: Any, *more: Any) -> Any:
        if type(value) is list and len(value) == items:
            gc.collect()
            traces = tracemalloc.take_snapshot().traces
            found.append(sum(each.size for each in traces if "/rune/" in each.traceback[0].filename))
        return await store_output(self, node, path, value, *more)

    monkeypatch.setattr(ExecutionData, "store_output", measure)
    document = workflow("start>s s>a a>g", s=split(), a=edit(v="{{ $item }}"), g=of_type("aggregator"))

    async def go() -> None:
        async with harness(folder) as engine:
            await (await engine.start(document, {"items": [1, 2, 3]})).end()
            gc.collect()
            tracemalloc.start()
            try:
                run = await engine.start(document, {"items": list(range(items))})
                assert (await run.end(300)).status == "completed"
            finally:
                tracemalloc.stop()

    asyncio.run(go())
    return found[-1]


def test_memory_of_a_fan_out_grows_by_less_than_300_bytes_per_item(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Most of it is the list that the aggregator returns, decoded: about 250 bytes for each of these objects."""
    few, many = 1_200, 3_200
    grown = _memory_at_aggregator(tmp_path / "many", many, monkeypatch)
    grown -= _memory_at_aggregator(tmp_path / "few", few, monkeypatch)
    assert grown / (many - few) <= 300


def test_results_of_items_are_packed() -> None:
    cache = Cache(10_000_000)
    wide = execution_data(cache, "wide")
    found = [NodeResult(2, (1, item), item, "ok", value=Inline(b"%d" % item)) for item in range(5_000)]
    for each in found:
        wide.cache_result(each)
    assert [wide.cached_result(2, each.path) for each in found] == found
    assert cache.size < 5_000 * 60
    wide.forget()
    assert (cache.size, wide.cached_result(2, (1, 0))) == (0, None)


def test_results_of_items_that_are_not_packed_are_cached_alone() -> None:
    wide = execution_data(Cache(10_000_000), "wide")
    found = [
        NodeResult(2, (1, 0), 1, "failed", failure=Error("E", "m")),
        NodeResult(2, (1, 1), 1, "ok", value=Large("key", 100_000)),
        NodeResult(2, (1, 2), 1, "ok", value=Inline(b"1" * 5_000)),
    ]
    for each in found:
        wide.cache_result(each)
    assert [wide.cached_result(2, each.path) for each in found] == found


def test_full_cache_evicts_packs_that_were_not_read() -> None:
    cache = Cache(50_000)
    wide = execution_data(cache, "wide")
    found = [NodeResult(2, (1, item), item, "ok", value=Inline(b"1" * 100)) for item in range(2_000)]
    for each in found:
        wide.cache_result(each)
    assert cache.size <= 50_000
    assert (wide.cached_result(2, (1, 0)), wide.cached_result(2, (1, 1_999))) == (None, found[-1])


def test_decoded_pages_of_items_behind_the_window_are_dropped() -> None:
    wide = execution_data(Cache(10_000_000), "wide")
    for number in range(100):
        wide.cache_page("wide/items", number, [number], 1)
    kept = [number for number in range(100) if wide.item_page(f"wide/items/{number}") == [number]]
    assert kept == list(range(100 - KEPT_PAGES, 100))
