"""Hazards E on a cluster: merge."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rune.core.fact import Result
from tests.hazards.building import counting, entry, kind, runs, sets, splits, status, waits, workflow
from tests.hazards.clustered import LATER, engines, fresh, queued, ran, until, wipe

MERGE = kind("merge")
OUT = kind("output", value="$m")


def test_h_e1_on_a_cluster_a_merge_behind_an_untaken_branch_does_not_wait() -> None:
    # red: cluster-e1: a dead edge does not arrive
    document = workflow(
        "start>i i>a:true i>b:false a>m b>m m>out",
        i=kind("conditional", expression="true"),
        a=sets(x=1),
        b=sets(x=2),
        m=MERGE,
        out=OUT,
    )
    told = ran(document, in_place=False)
    assert (told["status"], told["output"]) == ("completed", [{"x": 1}])
    assert told["total_duration_ms"] < 60_000


def test_h_e2_on_a_cluster_two_edges_of_one_source_are_two_parties() -> None:
    # red: cluster-e2: an arrival is kept by its source
    document = workflow("start>a a>m a>m m>out", a=sets(x=1), m=MERGE, out=OUT)
    assert ran(document, in_place=False)["output"] == [{"x": 1}, {"x": 1}]


def test_h_e3_on_a_cluster_the_timeout_of_a_race_counts_from_its_scope_and_fires() -> None:
    # red: cluster-e3: the timeout of a race runs from its first arrival
    merge = kind("merge", wait_mode="wait_for_any", timeout=60)
    told = ran(workflow("start>v start>w v>m w>m", v=waits(1), w=waits(2), m=merge))
    assert (told["status"], status(told, "m")) == ("failed", "failed")
    assert (told["error"]["code"], entry(told, "m")["error"]["code"]) == ("TIMEOUT", "TIMEOUT")
    assert 60_000 <= told["total_duration_ms"] < 120_000


def test_h_e4_on_a_cluster_an_arrival_after_the_timeout_brings_nothing_back() -> None:
    # red: cluster-e4: a join that was given up keeps its barrier, which then opens
    calls: list[str] = []
    merge = {**kind("merge", timeout=60), "error": "ignore"}
    document = workflow("start>a start>w a>m w>m m>c", a=sets(x=1), w=waits(1), m=merge, c=kind("t.call"))
    told = ran(document, registry=counting(calls))
    assert (told["status"], entry(told, "m")["error"]["code"], calls) == ("completed", "TIMEOUT", ["c@/"])
    assert told["total_duration_ms"] >= 3_600_000


def test_h_e5_a_join_outlives_the_loss_of_what_it_has_sent() -> None:
    # red: cluster-e5: what was running is looked at again at no time
    calls: list[str] = []
    settings = fresh()
    join = {**kind("t.call"), "queue": LATER}
    document = workflow("start>a start>b a>c b>c", a=kind("t.call"), b=kind("t.call"), c=join)

    async def go() -> str:
        async with engines(settings, registry=counting(calls)) as cluster:
            run = await cluster.start(document)

            async def opened() -> bool:
                return await queued(settings) == 1

            await until(opened)
        await wipe()
        async with engines(settings, registry=counting(calls), queues=("default", LATER)) as cluster:
            async with asyncio.timeout(60):
                return (await (await cluster.engine.expect(run.id))).status

    assert asyncio.run(go()) == "completed"
    assert sorted(calls) == ["a@/", "b@/", "c@/"]


def test_h_e6_on_a_cluster_a_merge_inside_a_split_keeps_its_items_apart() -> None:
    # red: cluster-e6: the barriers of all items are one
    document = workflow(
        "start>s s>a s>b a>m b>m m>g g>out",
        s=splits(),
        a=sets(v="{{ $item }}"),
        b=sets(v="{{ $item * 10 }}"),
        m=MERGE,
        g=kind("aggregator"),
        out=kind("output", value="{{ [[x.v for x in pair] for pair in $g] }}"),
    )
    assert ran(document, {"items": [1, 2, 3]}, in_place=False)["output"] == [[1, 10], [2, 20], [3, 30]]


def test_h_e7_on_a_cluster_a_wait_before_a_merge_is_known_by_name() -> None:
    # red: cluster-e7: an arrival is named after the node that made its payload
    document = workflow(
        "start>a start>b a>w w>m b>m m>out",
        a=sets(x=1),
        b=sets(x=2),
        w=waits(1),
        m=kind("merge", mode="object"),
        out=OUT,
    )
    assert ran(document)["output"] == {"w": {"x": 1}, "b": {"x": 2}}


@pytest.mark.parametrize("slow", ["a", "b"])
def test_h_e8_on_a_cluster_of_conflicting_keys_the_later_edge_wins_whoever_comes_first(slow: str) -> None:
    # red: cluster-e8: the arrivals of a join are taken in the order in which they came
    quick = "b" if slow == "a" else "a"
    edges = f"start>w w>{slow} start>{quick} a>m b>m m>out"
    document = workflow(
        edges, w=waits(1), a=sets(k="a"), b=sets(k="b"), m=kind("merge", mode="combine"), out=OUT
    )
    assert ran(document)["output"] == {"k": "b"}


def test_h_e9_on_a_cluster_the_output_of_a_merge_is_seen_behind_it() -> None:
    # red: cluster-e9: the output of a merge is not in the context
    document = workflow(
        "start>a start>b a>m b>m m>n n>out",
        a=sets(x=1),
        b=sets(x=2),
        m=MERGE,
        n=sets(y=1),
        out=kind("output", value="{{ $m[1].x }}"),
    )
    assert ran(document, in_place=False)["output"] == 2


def test_h_e10_on_a_cluster_waiting_and_untaken_branches_are_not_shown_as_done() -> None:
    # red: cluster-e10: what was skipped is shown as a success
    settings = fresh()
    document = workflow(
        "start>i i>a:true i>b:false start>w a>m b>m w>m",
        i=kind("conditional", expression="true"),
        a=sets(x=1),
        b=sets(x=2),
        w=waits(1),
        m=MERGE,
    )

    async def go() -> tuple[dict[str, str], set[str]]:
        async with engines(settings) as cluster:
            run = await cluster.start(document)

            async def only_waits() -> bool:
                facts = [row.fact for row in await run.facts()]
                ended = sum(isinstance(each, Result) for each in facts)
                return ended == 2 and len(facts) == 3 and cluster.engine.busy == 0

            await until(only_waits)
            shown: dict[str, Any] = {
                each["node_id"]: each["status"] for each in (await run.document())["nodes"]
            }
            return shown, {each.node for each in await cluster.engine.backend.state.explain(run.id)}

    shown, waiting = asyncio.run(go())
    assert (shown["a"], shown["b"]) == ("success", "skipped")
    assert shown.keys().isdisjoint({"m", "w"})
    assert waiting == {"m", "w"}


def test_h_e11_on_a_cluster_a_race_is_won_once_however_late_the_loser_comes() -> None:
    # red: cluster-e11: that a barrier was opened is forgotten, and with it that its node is done
    calls: list[str] = []
    document = workflow(
        "start>a start>w a>m w>m m>c",
        a=sets(x=1),
        w=waits(3, "days"),
        m=kind("merge", wait_mode="wait_for_any"),
        c=kind("t.call"),
    )
    told = ran(document, registry=counting(calls))
    assert (runs(told, "m"), calls) == (1, ["c@/"])
    assert told["total_duration_ms"] >= 3 * 86_400_000


def test_h_e12_on_a_cluster_cancelled_losers_make_no_effects() -> None:
    # red: cluster-e12: a claim does not ask for cancelled regions
    calls: list[str] = []
    merge = kind("merge", wait_mode="wait_for_any", cancel_losers=True)
    document = workflow(
        "start>a start>w w>c a>m c>m m>d",
        a=sets(x=1),
        w=waits(1),
        c=kind("t.call"),
        m=merge,
        d=kind("t.call"),
    )
    told = ran(document, registry=counting(calls))
    assert (calls, status(told, "w"), told["status"]) == (["d@/"], "cancelled", "completed")
