"""Hazards E: merge."""

from __future__ import annotations

import asyncio
import pathlib

import pytest

from rune.testing.clock import VirtualClock
from rune.testing.harness import harness
from tests.hazards.building import counting, entry, kind, ran, runs, sets, splits, status, waits, workflow

MERGE = kind("merge")
OUT = kind("output", value="$m")


def test_h_e1_a_merge_behind_an_untaken_branch_does_not_wait() -> None:
    # red: e1: a dead edge does not arrive
    document = workflow(
        "start>i i>a:true i>b:false a>m b>m m>out",
        i=kind("conditional", expression="true"),
        a=sets(x=1),
        b=sets(x=2),
        m=MERGE,
        out=OUT,
    )
    told = ran(document)
    assert (told["status"], told["output"]) == ("completed", [{"x": 1}])
    assert told["total_duration_ms"] < 60_000


def test_h_e2_two_edges_of_one_source_are_two_parties() -> None:
    # red: e2: of several edges of one source only the last counts
    document = workflow("start>a a>m a>m m>out", a=sets(x=1), m=MERGE, out=OUT)
    assert ran(document)["output"] == [{"x": 1}, {"x": 1}]


def test_h_e3_the_timeout_of_a_race_counts_from_its_scope_and_fires() -> None:
    # red: e3: the timeout of a race runs from its first arrival
    merge = kind("merge", wait_mode="wait_for_any", timeout=60)
    told = ran(workflow("start>v start>w v>m w>m", v=waits(1), w=waits(2), m=merge))
    assert (told["status"], status(told, "m")) == ("failed", "failed")
    assert (told["error"]["code"], entry(told, "m")["error"]["code"]) == ("TIMEOUT", "TIMEOUT")
    assert 60_000 <= told["total_duration_ms"] < 120_000


def test_h_e4_an_arrival_after_the_timeout_brings_nothing_back() -> None:
    # red: e4: a join that was given up keeps its barrier, and what is done is done again
    calls: list[str] = []
    merge = {**kind("merge", timeout=60), "error": "ignore"}
    document = workflow("start>a start>w a>m w>m m>c", a=sets(x=1), w=waits(1), m=merge, c=kind("t.call"))
    told = ran(document, registry=counting(calls))
    assert (told["status"], entry(told, "m")["error"]["code"], calls) == ("completed", "TIMEOUT", ["c@/"])
    assert told["total_duration_ms"] >= 3_600_000


def test_h_e6_a_merge_inside_a_split_keeps_its_items_apart() -> None:
    # red: e6: all barriers are those of the root scope
    document = workflow(
        "start>s s>a s>b a>m b>m m>g g>out",
        s=splits(),
        a=sets(v="{{ $item }}"),
        b=sets(v="{{ $item * 10 }}"),
        m=MERGE,
        g=kind("aggregator"),
        out=kind("output", value="{{ [[x.v for x in pair] for pair in $g] }}"),
    )
    assert ran(document, {"items": [1, 2, 3]})["output"] == [[1, 10], [2, 20], [3, 30]]


def test_h_e7_a_wait_before_a_merge_is_known_by_name() -> None:
    # red: e7: an arrival is named after the node that made its payload
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
def test_h_e8_of_conflicting_keys_the_later_edge_wins_whoever_comes_first(slow: str) -> None:
    # red: e8: parties are taken in the order in which they came
    quick = "b" if slow == "a" else "a"
    edges = f"start>w w>{slow} start>{quick} a>m b>m m>out"
    document = workflow(
        edges, w=waits(1), a=sets(k="a"), b=sets(k="b"), m=kind("merge", mode="combine"), out=OUT
    )
    assert ran(document)["output"] == {"k": "b"}


def test_h_e9_the_output_of_a_merge_is_seen_behind_it() -> None:
    # red: e9: the output of a merge is not in the context
    document = workflow(
        "start>a start>b a>m b>m m>n n>out",
        a=sets(x=1),
        b=sets(x=2),
        m=MERGE,
        n=sets(y=1),
        out=kind("output", value="{{ $m[1].x }}"),
    )
    assert ran(document)["output"] == 2


def test_h_e10_waiting_and_untaken_branches_are_not_shown_as_done(tmp_path: pathlib.Path) -> None:
    # red: e10: what was skipped is shown as a success
    document = workflow(
        "start>i i>a:true i>b:false start>w a>m b>m w>m",
        i=kind("conditional", expression="true"),
        a=sets(x=1),
        b=sets(x=2),
        w=waits(1),
        m=MERGE,
    )

    async def go() -> tuple[dict[str, str], set[str]]:
        async with harness(tmp_path, clock=VirtualClock()) as engine:
            run = await engine.start(document)
            await engine.settle()
            shown = {each["node_id"]: each["status"] for each in (await run.document())["nodes"]}
            return shown, {each.node for each in await engine.engine.backend.state.explain(run.id)}

    shown, waiting = asyncio.run(go())
    assert (shown["a"], shown["b"]) == ("success", "skipped")
    assert shown.keys().isdisjoint({"m", "w"})
    assert waiting == {"m", "w"}


def test_h_e11_a_race_is_won_once_however_late_the_loser_comes() -> None:
    # red: e11: the mark of an opened barrier is dropped with its data, and what is done is done again
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


def test_h_e12_cancelled_losers_make_no_effects() -> None:
    # red: e12: `touch` does not ask for cancelled regions
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
