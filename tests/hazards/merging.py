"""What must hold of merges wherever they run. Who asks says how a document is run to its end."""

from __future__ import annotations

from rune.testing.harness import Harness, Run
from tests.hazards.building import Ran, counting, entry, kind, runs, sets, splits, status, waits, workflow

MERGE = kind("merge")
OUT = kind("output", value="$m")


def behind_an_untaken_branch_it_does_not_wait(ran: Ran) -> None:
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


def two_edges_of_one_source_are_two_parties(ran: Ran) -> None:
    document = workflow("start>a a>m a>m m>out", a=sets(x=1), m=MERGE, out=OUT)
    assert ran(document)["output"] == [{"x": 1}, {"x": 1}]


def the_timeout_of_a_race_counts_from_its_scope(ran: Ran) -> None:
    merge = kind("merge", wait_mode="wait_for_any", timeout=60)
    told = ran(workflow("start>v start>w v>m w>m", v=waits(1), w=waits(2), m=merge))
    assert (told["status"], status(told, "m")) == ("failed", "failed")
    assert (told["error"]["code"], entry(told, "m")["error"]["code"]) == ("TIMEOUT", "TIMEOUT")
    assert 60_000 <= told["total_duration_ms"] < 120_000


def an_arrival_after_the_timeout_brings_nothing_back(ran: Ran) -> None:
    calls: list[str] = []
    merge = {**kind("merge", timeout=60), "error": "ignore"}
    document = workflow("start>a start>w a>m w>m m>c", a=sets(x=1), w=waits(1), m=merge, c=kind("t.call"))
    told = ran(document, registry=counting(calls))
    assert (told["status"], entry(told, "m")["error"]["code"], calls) == ("completed", "TIMEOUT", ["c@/"])
    assert told["total_duration_ms"] >= 3_600_000


def inside_a_split_it_keeps_the_items_apart(ran: Ran) -> None:
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


def a_wait_before_it_is_known_by_name(ran: Ran) -> None:
    document = workflow(
        "start>a start>b a>w w>m b>m m>out",
        a=sets(x=1),
        b=sets(x=2),
        w=waits(1),
        m=kind("merge", mode="object"),
        out=OUT,
    )
    assert ran(document)["output"] == {"w": {"x": 1}, "b": {"x": 2}}


def of_conflicting_keys_the_later_edge_wins(ran: Ran, slow: str) -> None:
    quick = "b" if slow == "a" else "a"
    edges = f"start>w w>{slow} start>{quick} a>m b>m m>out"
    document = workflow(
        edges, w=waits(1), a=sets(k="a"), b=sets(k="b"), m=kind("merge", mode="combine"), out=OUT
    )
    assert ran(document)["output"] == {"k": "b"}


def its_output_is_seen_behind_it(ran: Ran) -> None:
    document = workflow(
        "start>a start>b a>m b>m m>n n>out",
        a=sets(x=1),
        b=sets(x=2),
        m=MERGE,
        n=sets(y=1),
        out=kind("output", value="{{ $m[1].x }}"),
    )
    assert ran(document)["output"] == 2


HALFWAY = workflow(
    "start>i i>a:true i>b:false start>w a>m b>m w>m",
    i=kind("conditional", expression="true"),
    a=sets(x=1),
    b=sets(x=2),
    w=waits(1),
    m=MERGE,
)


async def halfway_only_what_is_done_is_shown_as_done(engine: Harness, run: Run) -> None:
    """Of a run of HALFWAY in which nothing can happen but the end of its wait."""
    shown = {each["node_id"]: each["status"] for each in (await run.document())["nodes"]}
    waiting = {each.node for each in await engine.engine.backend.state.explain(run.id)}
    assert (shown["a"], shown["b"]) == ("success", "skipped")
    assert shown.keys().isdisjoint({"m", "w"})
    assert waiting == {"m", "w"}


def a_race_is_won_once(ran: Ran) -> None:
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


def cancelled_losers_make_no_effects(ran: Ran) -> None:
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
