"""Hazards D: split and aggregator."""

from __future__ import annotations

import asyncio
import pathlib
from typing import Any

import pytest

from rune.core.fact import Result
from rune.core.token import Token
from rune.errors import InvalidDocument
from rune.testing.clock import VirtualClock
from rune.testing.harness import harness
from rune.wire.codec import encode_fact
from tests.hazards.building import (
    counting,
    entry,
    fails,
    kind,
    ran,
    runs,
    sets,
    splits,
    status,
    waits,
    workflow,
)

GATHER = kind("aggregator")
OUT = kind("output", value="$g")


def test_h_d1_inner_splits_of_different_items_share_nothing() -> None:
    # red: d1: a list is read without the index of the outer item
    document = workflow(
        "start>s s>t t>e e>h h>g g>out",
        s=splits("$trigger.rows"),
        t=splits("$item"),
        e=sets(v="{{ $item }}"),
        h=kind("aggregator"),
        g=GATHER,
        out=kind("output", value="{{ [[x.v for x in row] for row in $g] }}"),
    )
    rows = [["A0", "A1", "A2"], ["B0", "B1"], []]
    assert ran(document, {"rows": rows})["output"] == rows


def test_h_d2_the_lineage_ends_at_the_aggregator() -> None:
    # red: d2: the aggregator's token keeps the path of the last item
    told = ran(
        workflow("start>s s>e e>g g>a", s=splits(), e=sets(x=1), g=GATHER, a=sets(y=2)), {"items": [1, 2]}
    )
    assert (entry(told, "g")["lineage"], entry(told, "a")["lineage"]) == ([], [])
    assert entry(told, "e", 1)["lineage"][0]["total_items"] == 2


async def _again(folder: pathlib.Path, name: str, item: int | None) -> dict[str, Any]:
    """A split whose second item waits, too briefly for its execution to leave memory; meanwhile a message of a token
    that is done comes again."""
    calls: list[str] = []
    document = workflow(
        "start>s s>c c>i i>w:true i>g:false w>g g>out",
        s=splits(),
        c=kind("t.call"),
        i=kind("conditional", expression="$item == 1"),
        w=waits(1, "seconds"),
        g=GATHER,
        out=OUT,
    )
    async with harness(folder, clock=VirtualClock(), registry=counting(calls), in_place=False) as engine:
        run = await engine.start(document, {"items": [0, 1, 2]})
        await engine.settle()
        path = () if item is None else (run.plan.index["s"], item)
        for _ in range(3):
            await engine.engine.backend.queue.send(run.id, [Token(run.plan.index[name], path)])
            await engine.settle()
        # Before the end: what ran twice may also keep the execution from ending.
        assert sorted(calls) == ["c@/s:0", "c@/s:1", "c@/s:2"]
        await run.end()
        return await run.document()


def test_h_d3_a_redelivered_item_is_counted_once(tmp_path: pathlib.Path) -> None:
    # red: d3: a token that is done is applied again, and arrivals are counted
    assert asyncio.run(_again(tmp_path, "i", 0))["output"] == [{"did": "c"}] * 3


def test_h_d4_a_redelivered_split_fans_out_once(tmp_path: pathlib.Path) -> None:
    # red: d4: a split that is done is run, applied and spread again
    told = asyncio.run(_again(tmp_path, "s", None))
    assert (len(told["output"]), runs(told, "g")) == (3, 1)


FORKED = workflow(
    "start>s s>i i>f:true i>j:false j>g:true f>g g>out",
    s=splits(),
    i=kind("conditional", expression="$item == 0"),
    j=kind("conditional", expression="$item == 1"),
    f=fails(),
    g=GATHER,
    out=OUT,
)


def test_h_d5_failed_and_dead_ending_items_are_counted() -> None:
    # red: d5: a dead edge into the aggregator marks nothing
    output = ran(FORKED, {"items": [0, 1, 2]})["output"]
    assert output is not None, "the list was never made"
    assert (output[0]["error"]["code"], output[1:]) == ("BROKEN", [1, None])


@pytest.mark.parametrize("slow", [0, 1, 2])
def test_h_d6_the_order_of_arrival_changes_nothing(slow: int) -> None:
    # red: d6: a dead edge into the aggregator ends the execution
    document = workflow(
        "start>s s>k k>w:true k>i:false w>i i>g:true g>out",
        s=splits(),
        k=kind("conditional", expression=f"$item == {slow}"),
        w=waits(1),
        i=kind("conditional", expression="$item != 1"),
        g=GATHER,
        out=OUT,
    )
    assert ran(document, {"items": [0, 1, 2]})["output"] == [0, None, 2]


def test_h_d7_an_item_that_forks_is_one_item() -> None:
    # red: d7: each in-edge of the aggregator gives an element
    document = workflow(
        "start>s s>a s>b a>g b>g g>out",
        s=splits(),
        a=sets(x="{{ $item }}"),
        b=sets(y="{{ $item }}"),
        g=GATHER,
        out=OUT,
    )
    assert ran(document, {"items": [1, 2]})["output"] == [{"a": {"x": i}, "b": {"y": i}} for i in (1, 2)]


def test_h_d8_two_aggregators_share_nothing() -> None:
    # red: d8: an aggregator counts with the first fan-out of its scope
    document = workflow(
        "start>s s>a a>g start>t t>b b>h",
        s=splits(),
        a=sets(x="{{ $item }}"),
        g=GATHER,
        t=splits("$trigger.others"),
        b=sets(x="{{ $item }}"),
        h=GATHER,
    )
    told = ran(document, {"items": [1, 2, 3], "others": [9]})
    assert told["output"] == {"g": [{"x": 1}, {"x": 2}, {"x": 3}], "h": [{"x": 9}]}
    with pytest.raises(InvalidDocument):
        ran(workflow("start>s s>a s>b a>g b>h", s=splits(), a=sets(x=1), b=sets(x=2), g=GATHER, h=GATHER))


def test_h_d9_results_are_values_and_not_text() -> None:
    # red: d9: elements are made text when gathered
    items = [1, "x", {"a": [True, None]}, 1.5, []]
    assert (
        ran(
            workflow("start>s s>n n>g g>out", s=splits(), n=kind("noop"), g=GATHER, out=OUT), {"items": items}
        )["output"]
        == items
    )


def test_h_d10_an_element_is_what_the_item_gave() -> None:
    # red: d10: an element is an object by node
    document = workflow(
        "start>s s>a a>b b>g g>out", s=splits(), a=sets(x=1), b=sets(y="{{ $item }}"), g=GATHER, out=OUT
    )
    assert ran(document, {"items": [7]})["output"] == [{"y": 7}]


def test_h_d11_nothing_of_the_items_is_seen_behind_the_aggregator() -> None:
    # red: d11: the context holds the outputs of items too
    told = ran(
        workflow("start>s s>a a>g g>b", s=splits(), a=sets(x=1), g=GATHER, b=sets(y=2)), {"items": [1, 2]}
    )
    assert set(told["context"]) == {"$trigger", "$start", "$g", "$b"}
    for leaked in ("$item", "$a.x"):
        with pytest.raises(InvalidDocument):
            ran(
                workflow(
                    "start>s s>a a>g g>b", s=splits(), a=sets(x=1), g=GATHER, b=sets(y=f"{{{{ {leaked} }}}}")
                )
            )


def test_h_d12_an_empty_list_skips_the_body_and_gathers_nothing() -> None:
    # red: d12: a fan-out of nothing does not open its aggregator
    told = ran(
        workflow("start>s s>a a>g g>out", s=splits(), a=sets(x="{{ $item }}"), g=GATHER, out=OUT),
        {"items": []},
    )
    assert (told["status"], told["output"], status(told, "a")) == ("completed", [], "skipped")


def test_h_d13_items_may_take_days() -> None:
    # red: d13: the aggregator has its default timeout although a wait lies before it
    told = ran(
        workflow("start>s s>w w>g g>out", s=splits(), w=waits("{{ $item }}", "days"), g=GATHER, out=OUT),
        {"items": [1, 2]},
    )
    assert told["output"] == [1, 2]
    assert told["total_duration_ms"] >= 2 * 86_400_000


def test_h_d15_an_empty_list_stays_a_list() -> None:
    # red: d15: nothing gathered is written as an object
    document = workflow("start>s s>n n>g g>out", s=splits(), n=kind("noop"), g=GATHER, out=OUT)
    assert ran(document, {"items": [[], {}]})["output"] == [[], {}]
    assert ran(document, {"items": []})["output"] == []


def test_h_d17_one_failing_item_stops_nobody() -> None:
    # red: d17: the default policy inside a split is `halt`
    told = ran(FORKED, {"items": [0, 0, 1, 1]})
    assert told["status"] == "completed"
    assert told["output"][2:] == [1, 1]


def test_h_d18_progress_is_part_of_the_explanation(tmp_path: pathlib.Path) -> None:
    # red: d18: `explain` leaves out how many items are resolved
    document = workflow(
        "start>s s>i i>w:true i>g:false w>g",
        s=splits(),
        i=kind("conditional", expression="$item == 0"),
        w=waits(1),
        g=GATHER,
    )

    async def go() -> list[tuple[str, int | None, int | None]]:
        async with harness(tmp_path, clock=VirtualClock()) as engine:
            run = await engine.start(document, {"items": [0, 1, 2]})
            await engine.settle()
            told = await engine.engine.backend.state.explain(run.id)
            return [(each.node, each.done, each.total) for each in told if each.total]

    assert ("g", 2, 3) in asyncio.run(go())


def test_h_d20_no_row_grows_with_the_number_of_items(tmp_path: pathlib.Path) -> None:
    # red: d20: an output is kept in its row whatever its size
    async def go() -> tuple[str, int]:
        async with harness(tmp_path) as engine:
            document = workflow("start>s s>n n>g", s=splits(), n=kind("noop"), g=GATHER)
            run = await engine.start(document, {"items": ["x" * 100] * 5_000})
            end = await run.end(60)
            rows = [each.fact for each in await run.facts() if isinstance(each.fact, Result)]
            return end.status, max(len(encode_fact(each)) for each in rows if not each.path)

    ended, largest = asyncio.run(go())
    assert ended == "completed"
    assert largest < 2_000


def test_h_d21_a_slow_item_holds_up_only_its_place() -> None:
    # red: d21: the window is refilled when all of a batch have ended
    document = workflow(
        "start>s s>i i>l:true i>q:false l>g q>g g>out",
        s=splits(max_in_flight=2),
        i=kind("conditional", expression="$item == 0"),
        l=waits(10),
        q=waits(1),
        g=GATHER,
        out=OUT,
    )
    told = ran(document, {"items": list(range(6))})
    assert told["output"] == list(range(6))
    assert 36_000_000 <= told["total_duration_ms"] < 37_000_000
