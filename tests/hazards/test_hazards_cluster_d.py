"""Hazards D on a cluster: split and aggregator. D14 and D19 are matters of Redis alone: test_hazards_redis.py."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rune.adapters.redis.keys import Keys
from rune.core.fact import Result
from rune.core.token import Token
from rune.errors import InvalidDocument
from rune.wire.codec import encode_fact
from tests.hazards.building import counting, entry, fails, kind, runs, sets, splits, status, waits, workflow
from tests.hazards.clustered import LATER, ask, engines, fresh, queued, ran, until, wipe

GATHER = kind("aggregator")
OUT = kind("output", value="$g")


def test_h_d1_on_a_cluster_inner_splits_of_different_items_share_nothing() -> None:
    # red: cluster-d1: the marks of items are kept without the path around their split
    document = workflow(
        "start>s s>t t>e e>h h>g g>out",
        s=splits("$trigger.rows"),
        t=splits("$item"),
        e=sets(v="{{ $item }}"),
        h=GATHER,
        g=GATHER,
        out=kind("output", value="{{ [[x.v for x in row] for row in $g] }}"),
    )
    rows = [["A0", "A1", "A2"], ["B0", "B1"], []]
    assert ran(document, {"rows": rows})["output"] == rows


def test_h_d2_on_a_cluster_the_lineage_ends_at_the_aggregator() -> None:
    # red: cluster-d2: the aggregator's token is emitted in the scope of the last item
    told = ran(
        workflow("start>s s>e e>g g>a", s=splits(), e=sets(x=1), g=GATHER, a=sets(y=2)), {"items": [1, 2]}
    )
    assert (entry(told, "g")["lineage"], entry(told, "a")["lineage"]) == ([], [])
    assert entry(told, "e", 1)["lineage"][0]["total_items"] == 2


def _sent_again(name: str, item: int | None) -> dict[str, Any]:
    """A split whose second item waits for us; meanwhile a message of a token that is done comes again."""
    calls: list[str] = []
    document = workflow(
        "start>s s>c c>i i>w:true i>g:false w>g g>out",
        s=splits(),
        c=kind("t.call"),
        i=kind("conditional", expression="$item == 1"),
        w=kind("wait", resume="signal", name="go"),
        g=GATHER,
        out=OUT,
    )
    settings = fresh()

    async def go() -> dict[str, Any]:
        async with engines(settings, count=2, registry=counting(calls), in_place=False) as cluster:
            run = await cluster.start(document, {"items": [0, 1, 2]})

            async def waits_only() -> bool:
                done = [row.fact.node for row in await run.facts() if isinstance(row.fact, Result)]
                return sorted(done) == sorted(run.plan.index[each] for each in "sccciii")

            await until(waits_only)
            path = () if item is None else (run.plan.index["s"], item)
            queue = cluster.engine.backend.queue
            for _ in range(3):
                await queue.send(run.id, [Token(run.plan.index[name], path)])

            async def served() -> bool:
                return await queued(settings, "default") == 0

            await until(served)
            await cluster.engine.desk.signal(run.id, "go", b'{"did":"c"}')
            await run.end()
            return await run.document()

    told = asyncio.run(go())
    assert sorted(calls) == ["c@/s:0", "c@/s:1", "c@/s:2"]
    return told


def test_h_d3_on_a_cluster_a_redelivered_item_is_counted_once() -> None:
    # red: cluster-d3: a claim answers that a token which is done may run
    assert _sent_again("c", 0)["output"] == [{"did": "c"}] * 3


def test_h_d4_on_a_cluster_a_redelivered_split_fans_out_once() -> None:
    # red: cluster-d4: a decision about a node that is done is carried out once more
    told = _sent_again("s", None)
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


def test_h_d5_on_a_cluster_failed_and_dead_ending_items_are_counted() -> None:
    # red: cluster-d5: only live edges are marked at the aggregator
    output = ran(FORKED, {"items": [0, 1, 2]})["output"]
    assert output is not None, "the list was never made"
    assert (output[0]["error"]["code"], output[1:]) == ("BROKEN", [1, None])


@pytest.mark.parametrize("slow", [0, 1, 2])
def test_h_d6_on_a_cluster_the_order_of_arrival_changes_nothing(slow: int) -> None:
    # red: cluster-d6: a dead edge that comes last does not open the aggregator
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


def test_h_d7_on_a_cluster_an_item_that_forks_is_one_item() -> None:
    # red: cluster-d7: the aggregator opens when as many edges as items have arrived
    document = workflow(
        "start>s s>a s>w w>b a>g b>g g>out",
        s=splits(),
        a=sets(x="{{ $item }}"),
        w=waits(1),
        b=sets(y="{{ $item }}"),
        g=GATHER,
        out=OUT,
    )
    assert ran(document, {"items": [1, 2]})["output"] == [{"a": {"x": i}, "b": {"y": i}} for i in (1, 2)]


def test_h_d8_on_a_cluster_two_aggregators_share_nothing() -> None:
    # red: cluster-d8: a fan-out counts at the first aggregator of the plan
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


def test_h_d9_on_a_cluster_results_are_values_and_not_text() -> None:
    # red: cluster-d9: elements are made text when gathered
    items = [1, "x", {"a": [True, None]}, 1.5, [], 12345678901234567, "\u0000", "{}"]
    document = workflow("start>s s>n n>g g>out", s=splits(), n=kind("noop"), g=GATHER, out=OUT)
    assert ran(document, {"items": items})["output"] == items


def test_h_d10_on_a_cluster_an_element_is_what_the_item_gave() -> None:
    # red: cluster-d10: an element is an object by node
    document = workflow(
        "start>s s>a a>b b>g g>out", s=splits(), a=sets(x=1), b=sets(y="{{ $item }}"), g=GATHER, out=OUT
    )
    assert ran(document, {"items": [7]})["output"] == [{"y": 7}]


def test_h_d11_on_a_cluster_nothing_of_the_items_is_seen_behind_the_aggregator() -> None:
    # red: cluster-d11: the context holds the outputs of items too
    told = ran(
        workflow("start>s s>a a>g g>b", s=splits(), a=sets(x=1), g=GATHER, b=sets(y=2)), {"items": [1, 2]}
    )
    assert set(told["context"]) == {"$trigger", "$start", "$g", "$b"}
    with pytest.raises(InvalidDocument):
        ran(workflow("start>s s>a a>g g>b", s=splits(), a=sets(x=1), g=GATHER, b=sets(y="{{ $item }}")))


def test_h_d12_on_a_cluster_an_empty_list_skips_the_body_and_gathers_nothing() -> None:
    # red: cluster-d12: a fan-out of nothing does not open its aggregator
    document = workflow("start>s s>a a>g g>out", s=splits(), a=sets(x="{{ $item }}"), g=GATHER, out=OUT)
    told = ran(document, {"items": []})
    assert (told["status"], told["output"], status(told, "a")) == ("completed", [], "skipped")


def test_h_d13_on_a_cluster_items_may_take_days() -> None:
    # red: cluster-d13: the aggregator has its default timeout although a wait lies before it
    document = workflow(
        "start>s s>w w>g g>out", s=splits(), w=waits("{{ $item }}", "days"), g=GATHER, out=OUT
    )
    told = ran(document, {"items": [1, 2]})
    assert told["output"] == [1, 2]
    assert told["total_duration_ms"] >= 2 * 86_400_000


def test_h_d15_on_a_cluster_an_empty_list_stays_a_list() -> None:
    # red: cluster-d15: nothing gathered is written as an object
    document = workflow("start>s s>n n>g g>out", s=splits(), n=kind("noop"), g=GATHER, out=OUT)
    assert ran(document, {"items": [[], {}]})["output"] == [[], {}]
    assert ran(document, {"items": []})["output"] == []


def test_h_d16_a_list_outlives_the_loss_of_its_barrier() -> None:
    # red: cluster-d16: after a loss nobody reads the roll of what was running
    calls: list[str] = []
    settings = fresh()
    document = workflow(
        "start>s s>c c>g g>out", s=splits(), c=kind("t.call"), g={**GATHER, "queue": LATER},
        out=kind("output", value="{{ len($g) }}"),
    )  # fmt: skip

    async def go() -> Any:
        async with engines(settings, registry=counting(calls), in_place=False) as cluster:
            run = await cluster.start(document, {"items": [0, 1, 2]})

            async def opened() -> bool:
                return await queued(settings) == 1

            await until(opened)
        await wipe()
        async with engines(settings, registry=counting(calls), queues=("default", LATER)) as cluster:
            await (await cluster.engine.expect(run.id))
            run._harness = cluster
            return (await run.document())["output"]

    async def bounded() -> Any:
        async with asyncio.timeout(60):
            return await go()

    assert asyncio.run(bounded()) == 3
    assert sorted(calls) == ["c@/s:0", "c@/s:1", "c@/s:2"]


def test_h_d17_on_a_cluster_one_failing_item_stops_nobody() -> None:
    # red: cluster-d17: the default policy inside a split is `halt`
    told = ran(FORKED, {"items": [0, 0, 1, 1]})
    assert told["status"] == "completed"
    assert told["output"][2:] == [1, 1]


def test_h_d18_on_a_cluster_progress_is_part_of_the_explanation() -> None:
    # red: cluster-d18: how many items are resolved is not read back
    document = workflow(
        "start>s s>i i>w:true i>g:false w>g",
        s=splits(),
        i=kind("conditional", expression="$item == 0"),
        w={**kind("t.call"), "queue": LATER},
        g=GATHER,
    )
    settings = fresh()

    async def go() -> list[tuple[str, int | None, int | None]]:
        async with engines(settings, registry=counting([])) as cluster:
            run = await cluster.start(document, {"items": [0, 1, 2]})

            async def others_done() -> bool:
                return (
                    len(await run.facts()) >= 4 and await queued(settings) == 1 and cluster.engine.busy == 0
                )

            await until(others_done)
            told = await cluster.engine.backend.state.explain(run.id)
            return [(each.node, each.done, each.total) for each in told if each.total]

    assert ("g", 2, 3) in asyncio.run(go())


def test_h_d20_on_a_cluster_nothing_grows_with_the_number_of_items() -> None:
    # red: cluster-d20: the marks of all items are one field
    settings = fresh()
    document = workflow("start>s s>n n>g", s=splits(), n=kind("noop"), g={**GATHER, "queue": LATER})

    async def go() -> tuple[int, int]:
        async with engines(settings, in_place=False) as cluster:
            run = await cluster.start(document, {"items": ["x" * 100] * 2_500})

            async def gathered() -> bool:
                return await queued(settings) == 1

            await until(gathered, 60)
            fields = await ask("HGETALL", Keys(settings.prefix, settings.partitions).of(run.id)[0])
            rows = [each.fact for each in await run.facts() if isinstance(each.fact, Result)]
            return max(map(len, fields)), max(len(encode_fact(each)) for each in rows if not each.path)

    field, row = asyncio.run(go())
    assert field < 1_500
    assert row < 2_000


def test_h_d21_on_a_cluster_a_slow_item_holds_up_only_its_place() -> None:
    # red: cluster-d21: the window is refilled when all of a batch have ended
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
