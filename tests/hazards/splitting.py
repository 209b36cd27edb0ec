"""What must hold of splits and aggregators wherever they run. Who asks says how a document is run to its end."""

from __future__ import annotations

import pytest

from rune.codec.facts import encode_fact
from rune.core.execution.fact import NodeResult
from rune.core.execution.token import Token
from rune.errors import InvalidDocumentError
from rune.testing.harness import Harness, Run
from tests.hazards.building import Fields, Ran, entry, fails, kind, sets, splits, status, waits, workflow

GATHER = kind("aggregator")
OUT = kind("output", value="$g")
PASSED_ON = workflow("start>s s>n n>g g>out", s=splits(), n=kind("noop"), g=GATHER, out=OUT)
"""Every item is gathered as it is."""


def inner_splits_of_different_items_share_nothing(ran: Ran) -> None:
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


def the_lineage_ends_at_the_aggregator(ran: Ran) -> None:
    told = ran(
        workflow("start>s s>e e>g g>a", s=splits(), e=sets(x=1), g=GATHER, a=sets(y=2)), {"items": [1, 2]}
    )
    assert (entry(told, "g")["lineage"], entry(told, "a")["lineage"]) == ([], [])
    assert entry(told, "e", 1)["lineage"][0]["total_items"] == 2


CALLED = ["c@/s:0", "c@/s:1", "c@/s:2"]


def called_and_held(held: Fields) -> Fields:
    """Each of three items makes a call; then the second goes through a node that holds it up."""
    return workflow(
        "start>s s>c c>i i>w:true i>g:false w>g g>out",
        s=splits(),
        c=kind("t.call"),
        i=kind("conditional", expression="$item == 1"),
        w=held,
        g=GATHER,
        out=OUT,
    )


def token(run: Run, name: str, item: int | None) -> Token:
    """That of a node, or of a node at an item of the split."""
    return Token(run.plan.index[name], () if item is None else (run.plan.index["s"], item))


FORKED = workflow(
    "start>s s>i i>f:true i>j:false j>g:true f>g g>out",
    s=splits(),
    i=kind("conditional", expression="$item == 0"),
    j=kind("conditional", expression="$item == 1"),
    f=fails(),
    g=GATHER,
    out=OUT,
)


def failed_and_dead_ending_items_are_counted(ran: Ran) -> None:
    output = ran(FORKED, {"items": [0, 1, 2]})["output"]
    assert output is not None, "the list was never made"
    assert (output[0]["error"]["code"], output[1:]) == ("BROKEN", [1, None])


def one_failing_item_stops_nobody(ran: Ran) -> None:
    told = ran(FORKED, {"items": [0, 0, 1, 1]})
    assert told["status"] == "completed"
    assert told["output"][2:] == [1, 1]


def the_order_of_arrival_changes_nothing(ran: Ran, slow: int) -> None:
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


def an_item_that_forks_is_one_item(ran: Ran) -> None:
    body = {"s": splits(), "a": sets(x="{{ $item }}"), "b": sets(y="{{ $item }}"), "g": GATHER, "out": OUT}
    together = workflow("start>s s>a s>b a>g b>g g>out", **body)
    apart = workflow("start>s s>a s>w w>b a>g b>g g>out", **body, w=waits(1))
    for document in (together, apart):
        assert ran(document, {"items": [1, 2]})["output"] == [{"a": {"x": i}, "b": {"y": i}} for i in (1, 2)]


def two_aggregators_share_nothing(ran: Ran) -> None:
    document = workflow(
        "start>s s>w w>a a>g start>t t>b b>h",
        s=splits(),
        w=waits(1),  # the second list is made while the first is not
        a=sets(x="{{ $item }}"),
        g=GATHER,
        t=splits("$trigger.others"),
        b=sets(x="{{ $item }}"),
        h=GATHER,
    )
    told = ran(document, {"items": [1, 2, 3], "others": [9]})
    assert told["output"] == {"g": [{"x": 1}, {"x": 2}, {"x": 3}], "h": [{"x": 9}]}
    with pytest.raises(InvalidDocumentError):
        ran(workflow("start>s s>a s>b a>g b>h", s=splits(), a=sets(x=1), b=sets(x=2), g=GATHER, h=GATHER))


def results_are_values_and_not_text(ran: Ran) -> None:
    items = [1, "x", {"a": [True, None]}, 1.5, [], 12345678901234567, "\u0000", "{}"]
    assert ran(PASSED_ON, {"items": items})["output"] == items


def an_element_is_what_the_item_gave(ran: Ran) -> None:
    document = workflow(
        "start>s s>a a>b b>g g>out", s=splits(), a=sets(x=1), b=sets(y="{{ $item }}"), g=GATHER, out=OUT
    )
    assert ran(document, {"items": [7]})["output"] == [{"y": 7}]


def nothing_of_the_items_is_seen_behind_the_aggregator(ran: Ran) -> None:
    def behind(b: Fields) -> Fields:
        return workflow("start>s s>a a>g g>b", s=splits(), a=sets(x=1), g=GATHER, b=b)

    told = ran(behind(sets(y=2)), {"items": [1, 2]})
    assert set(told["context"]) == {"$trigger", "$start", "$g", "$b"}
    for leaked in ("$item", "$a.x"):
        with pytest.raises(InvalidDocumentError):
            ran(behind(sets(y=f"{{{{ {leaked} }}}}")))


def an_empty_list_skips_the_body_and_gathers_nothing(ran: Ran) -> None:
    document = workflow("start>s s>a a>g g>out", s=splits(), a=sets(x="{{ $item }}"), g=GATHER, out=OUT)
    told = ran(document, {"items": []})
    assert (told["status"], told["output"], status(told, "a")) == ("completed", [], "skipped")


def an_empty_list_stays_a_list(ran: Ran) -> None:
    assert ran(PASSED_ON, {"items": [[], {}]})["output"] == [[], {}]
    assert ran(PASSED_ON, {"items": []})["output"] == []


def items_may_take_days(ran: Ran) -> None:
    nap = waits("{{ $item }}", "days")
    told = ran(workflow("start>s s>w w>g g>out", s=splits(), w=nap, g=GATHER, out=OUT), {"items": [1, 2]})
    assert told["output"] == [1, 2]
    assert told["total_duration_ms"] >= 2 * 86_400_000


def first_held(held: Fields) -> Fields:
    """The first of the items goes through a node that holds it up."""
    return workflow(
        "start>s s>i i>w:true i>g:false w>g",
        s=splits(),
        i=kind("conditional", expression="$item == 0"),
        w=held,
        g=GATHER,
    )


async def progress(engine: Harness, run: Run) -> list[tuple[str, int | None, int | None]]:
    """What the explanation says of lists: how many items of how many are resolved."""
    told = await engine.engine.backend.state.explain(run.id)
    return [(each.node, each.done, each.total) for each in told if each.total]


async def largest_row(run: Run) -> int:
    """The size of the largest result outside of the items."""
    rows = [each.fact for each in await run.facts() if isinstance(each.fact, NodeResult)]
    return max(len(encode_fact(each)) for each in rows if not each.path)


def a_slow_item_holds_up_only_its_place(ran: Ran) -> None:
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
