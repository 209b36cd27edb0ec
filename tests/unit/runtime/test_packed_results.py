"""Packed results are those that were added, and take a fraction of their memory."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rune.codec.facts import MAX_PACKED_BYTES, MAX_TEMPLATES, PACK_ITEMS, PackedResults
from rune.core.execution.fact import NodeResult
from rune.core.execution.outcome import Error
from rune.core.execution.stored_value import Inline, Large, Same
from rune.core.execution.token import Arrived, Path, Ref

OUTER = (3, 7, 5)
TIMES = st.integers(min_value=0, max_value=2**53)


def _path(item: int) -> Path:
    return (*OUTER, item)


@st.composite
def _results(draw: st.DrawFn) -> list[NodeResult]:
    """The results of some items of one pack, in any order."""
    places = draw(st.lists(st.integers(0, PACK_ITEMS - 1), unique=True, max_size=20))
    first = PACK_ITEMS * draw(st.integers(0, 4_000))
    return [_result(draw, _path(first + place)) for place in places]


def _result(draw: st.DrawFn, path: Path) -> NodeResult:
    refs_here = [Ref("item", 2, path), Ref("result", 2, path), Ref("entered", 2, path)]
    passed = st.sampled_from([Same(each) for each in refs_here])
    value: Any = draw(st.binary(max_size=40).map(Inline) | passed)
    at = draw(TIMES)
    refs = st.none() | st.just(Ref("result", 1, path)) | st.just(Ref("start"))
    return NodeResult(
        9,
        path,
        at,
        draw(st.sampled_from(["ok", "cancelled"])),
        outlet=draw(st.sampled_from([None, "true", "false"])),
        value=value,
        payload=draw(refs),
        arrived=draw(st.sampled_from([(), (Arrived(1, Ref("start")),)])),
        attempt=draw(st.integers(1, 3)),
        began=draw(st.just(0) | st.integers(max(0, at - 2**31 + 1), at)),
        worker=draw(st.sampled_from(["", "w1"])),
        logged=draw(st.booleans()),
    )


@given(_results())
def test_packed_results_are_those_that_were_added(results: list[NodeResult]) -> None:
    pack = PackedResults()
    added = [each for each in results if pack.add(each)]
    assert [pack.get(each.path) for each in added] == added
    assert all(pack.get(each.path) is None for each in results if each not in added)
    assert len(added) >= min(len(results), MAX_TEMPLATES)


def test_result_that_is_added_twice_is_kept_once() -> None:
    pack = PackedResults()
    result = NodeResult(1, _path(4), 5, "ok", value=Inline(b"1"))
    assert (pack.add(result), pack.add(result), len(pack)) == (True, True, 1)


@pytest.mark.parametrize(
    "result",
    [
        NodeResult(1, _path(4), 5, "failed", failure=Error("E", "m")),
        NodeResult(1, _path(4), 5, "failed", value=Inline(b"1"), failure=Error("E", "m")),
        NodeResult(1, _path(4), 5, "ok", value=Large("key", 100_000)),
        NodeResult(1, _path(4), 5, "ok", value=Same(Ref("result", 0))),
        NodeResult(1, _path(4), 5, "ok", value=Inline(b"1" * (MAX_PACKED_BYTES + 1))),
        NodeResult(1, _path(4), 2**33, "ok", value=Inline(b"1"), began=1),
        NodeResult(1, _path(4), 5, "ok", value=Inline(b"1"), began=6),
    ],
    ids=["failed", "failed-with-value", "blob", "of-another-scope", "large", "of-weeks", "clock-set-back"],
)
def test_result_that_is_not_plain_is_not_packed(result: NodeResult) -> None:
    pack = PackedResults()
    assert (pack.add(result), pack.get(result.path), len(pack)) == (False, None, 0)


def test_packed_result_takes_less_than_40_bytes_and_its_value() -> None:
    def results() -> Any:
        for item in range(20 * PACK_ITEMS):
            yield NodeResult(1, _path(item), 1_700_000_000_000 + item, "ok", value=Inline(b'{"v":%d}' % item))

    tracemalloc.start()
    try:
        packs = [PackedResults() for _ in range(20)]
        assert all(packs[each.path[-1] // PACK_ITEMS].add(each) for each in results())
        size = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert size / (20 * PACK_ITEMS) < 40 + len('{"v":5000}')
