"""Hazards E: merge."""

from __future__ import annotations

import asyncio

import pytest

from rune.core.execution.fact import NodeResult
from rune.testing.harness import Harness, Run, VirtualClock
from tests.support.backends import (
    UNSERVED_QUEUE,
    Backend,
    ClusterBackend,
    backends,
    end_status,
    flush_redis,
)
from tests.support.waiting import until
from tests.support.workflows import (
    edit,
    node_entry,
    node_status,
    of_type,
    recording_registry,
    split,
    success_count,
    wait,
    workflow,
)

MERGE = of_type("merge")
OUT = of_type("output", value="$m")


@backends("embedded", "redis-travelling")
def test_h_e1_merge_does_not_wait_for_untaken_branch(backend: Backend) -> None:
    # fault: e1: a dead edge does not arrive
    # fault: e1-redis: a dead edge does not arrive
    document = workflow(
        "start>i i>a:true i>b:false a>m b>m m>out",
        i=of_type("conditional", expression="true"),
        a=edit(x=1),
        b=edit(x=2),
        m=MERGE,
        out=OUT,
    )
    result = backend.run(document)
    assert (result["status"], result["output"]) == ("completed", [{"x": 1}])
    assert result["total_duration_ms"] < 60_000


@backends("embedded", "redis-travelling")
def test_h_e2_two_edges_of_one_source_are_two_arrivals(backend: Backend) -> None:
    # fault: e2: of several edges of one source only the last counts
    # fault: e2-redis: an arrival is stored by its source
    document = workflow("start>a a>m a>m m>out", a=edit(x=1), m=MERGE, out=OUT)
    assert backend.run(document)["output"] == [{"x": 1}, {"x": 1}]


@backends("embedded", "redis")
def test_h_e3_race_timeout_starts_with_scope(backend: Backend) -> None:
    # fault: e3: the timeout of a race runs from its first arrival
    # fault: e3-redis: the timeout of a race runs from its first arrival
    merge = of_type("merge", wait_mode="wait_for_any", timeout=60)
    result = backend.run(workflow("start>v start>w v>m w>m", v=wait(1), w=wait(2), m=merge))
    assert (result["status"], node_status(result, "m")) == ("failed", "failed")
    assert (result["error"]["code"], node_entry(result, "m")["error"]["code"]) == ("TIMEOUT", "TIMEOUT")
    assert 60_000 <= result["total_duration_ms"] < 120_000


@backends("embedded", "redis")
def test_h_e4_arrival_after_timeout_has_no_effect(backend: Backend) -> None:
    # fault: e4: a join that timed out keeps its barrier, and finished nodes run again
    # fault: e4-redis: a join that timed out keeps its barrier, which then opens
    calls: list[str] = []
    merge = {**of_type("merge", timeout=60), "error": "ignore"}
    document = workflow("start>a start>w a>m w>m m>c", a=edit(x=1), w=wait(1), m=merge, c=of_type("t.call"))
    result = backend.run(document, registry=recording_registry(calls))
    code = node_entry(result, "m")["error"]["code"]
    assert (result["status"], code, calls) == ("completed", "TIMEOUT", ["c@/"])
    assert result["total_duration_ms"] >= 3_600_000


@backends("redis")
def test_h_e5_join_survives_loss_of_sent_tokens(backend: ClusterBackend) -> None:
    # fault: e5: running executions are never checked again
    calls: list[str] = []
    join = {**of_type("t.call"), "queue": UNSERVED_QUEUE}
    document = workflow("start>a start>b a>c b>c", a=of_type("t.call"), b=of_type("t.call"), c=join)

    async def go() -> str:
        async with backend.open(registry=recording_registry(calls)) as engine:
            run = await engine.start(document)
            await backend.wait_for_queue_length(1)
        await flush_redis()
        queues = ("default", UNSERVED_QUEUE)
        async with backend.open(registry=recording_registry(calls), queues=queues) as engine:
            return await end_status(engine, run.id)

    assert asyncio.run(go()) == "completed"
    assert sorted(calls) == ["a@/", "b@/", "c@/"]


@backends("embedded", "redis-travelling")
def test_h_e6_merge_inside_split_keeps_items_apart(backend: Backend) -> None:
    # fault: e6: all barriers are those of the root scope
    # fault: e6-redis: the barriers of all items are one
    document = workflow(
        "start>s s>a s>b a>m b>m m>g g>out",
        s=split(),
        a=edit(v="{{ $item }}"),
        b=edit(v="{{ $item * 10 }}"),
        m=MERGE,
        g=of_type("aggregator"),
        out=of_type("output", value="{{ [[x.v for x in pair] for pair in $g] }}"),
    )
    assert backend.run(document, {"items": [1, 2, 3]})["output"] == [[1, 10], [2, 20], [3, 30]]


@backends("embedded", "redis")
def test_h_e7_wait_before_merge_keeps_its_name(backend: Backend) -> None:
    # fault: e7: an arrival is named after the node that made its payload
    # fault: e7-redis: an arrival is named after the node that made its payload
    document = workflow(
        "start>a start>b a>w w>m b>m m>out",
        a=edit(x=1),
        b=edit(x=2),
        w=wait(1),
        m=of_type("merge", mode="object"),
        out=OUT,
    )
    assert backend.run(document)["output"] == {"w": {"x": 1}, "b": {"x": 2}}


@pytest.mark.parametrize("slow", ["a", "b"])
@backends("embedded", "redis")
def test_h_e8_later_edge_wins_conflict_in_any_order(backend: Backend, slow: str) -> None:
    # fault: e8: arrivals are combined in the order in which they came
    # fault: e8-redis: arrivals are combined in the order in which they came
    quick = "b" if slow == "a" else "a"
    document = workflow(
        f"start>w w>{slow} start>{quick} a>m b>m m>out",
        w=wait(1),
        a=edit(k="a"),
        b=edit(k="b"),
        m=of_type("merge", mode="combine"),
        out=OUT,
    )
    assert backend.run(document)["output"] == {"k": "b"}


@backends("embedded", "redis-travelling")
def test_h_e9_merge_output_is_visible_downstream(backend: Backend) -> None:
    # fault: e9: the output of a merge is not in the context
    # fault: e9-redis: the output of a merge is not in the context
    document = workflow(
        "start>a start>b a>m b>m m>n n>out",
        a=edit(x=1),
        b=edit(x=2),
        m=MERGE,
        n=edit(y=1),
        out=of_type("output", value="{{ $m[1].x }}"),
    )
    assert backend.run(document)["output"] == 2


HALFWAY = workflow(
    "start>i i>a:true i>b:false start>w a>m b>m w>m",
    i=of_type("conditional", expression="true"),
    a=edit(x=1),
    b=edit(x=2),
    w=wait(1),
    m=MERGE,
)
"""After `a` only the wait is left."""


async def _check_halfway(engine: Harness, run: Run) -> None:
    shown = {each["node_id"]: each["status"] for each in (await run.document())["nodes"]}
    waiting = {each.node for each in await engine.engine.backend.state.explain(run.id)}
    assert (shown["a"], shown["b"]) == ("success", "skipped")
    assert shown.keys().isdisjoint({"m", "w"})
    assert waiting == {"m", "w"}


@backends("embedded")
def test_h_e10_waiting_and_untaken_branches_are_not_shown_as_done(backend: Backend) -> None:
    # fault: e10: a skipped node is shown as a success
    async def go() -> None:
        async with backend.open(clock=VirtualClock()) as engine:
            run = await engine.start(HALFWAY)
            await engine.settle()
            await _check_halfway(engine, run)

    asyncio.run(go())


@backends("redis")
def test_h_e10_waiting_branches_in_cluster_are_not_shown_as_done(backend: ClusterBackend) -> None:
    # fault: e10-redis: a skipped node is shown as a success
    async def go() -> None:
        async with backend.open() as engine:
            run = await engine.start(HALFWAY)

            async def only_waits() -> bool:
                facts = [row.fact for row in await run.facts()]
                ended = sum(isinstance(each, NodeResult) for each in facts)
                return ended == 2 and len(facts) == 3 and engine.engine.busy == 0

            await until(only_waits, "only the wait is left", 90.0)
            await _check_halfway(engine, run)

    asyncio.run(go())


@backends("embedded", "redis")
def test_h_e11_late_loser_does_not_win_race_again(backend: Backend) -> None:
    # fault: e11: the mark of an opened barrier is dropped with its data, and finished nodes run again
    # fault: e11-redis: an opened barrier and the end of its node are forgotten
    calls: list[str] = []
    document = workflow(
        "start>a start>w a>m w>m m>c",
        a=edit(x=1),
        w=wait(3, "days"),
        m=of_type("merge", wait_mode="wait_for_any"),
        c=of_type("t.call"),
    )
    result = backend.run(document, registry=recording_registry(calls))
    assert (success_count(result, "m"), calls) == (1, ["c@/"])
    assert result["total_duration_ms"] >= 3 * 86_400_000


@backends("embedded", "redis")
def test_h_e12_cancelled_losers_have_no_effects(backend: Backend) -> None:
    # fault: e12: a claim ignores cancelled regions
    # fault: e12-redis: a claim ignores cancelled regions
    calls: list[str] = []
    merge = of_type("merge", wait_mode="wait_for_any", cancel_losers=True)
    document = workflow(
        "start>a start>w w>c a>m c>m m>d",
        a=edit(x=1),
        w=wait(1),
        c=of_type("t.call"),
        m=merge,
        d=of_type("t.call"),
    )
    result = backend.run(document, registry=recording_registry(calls))
    assert (calls, node_status(result, "w"), result["status"]) == (["d@/"], "cancelled", "completed")
