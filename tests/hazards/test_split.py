"""Hazards D: split and aggregator. D14 and D19 concern Redis alone: test_redis_state.py."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rune.adapters.redis.encoding import KeySpace
from rune.codec.facts import encode_fact
from rune.core.execution.fact import NodeResult
from rune.errors import InvalidDocumentError
from rune.testing.harness import Harness, Run, VirtualClock
from tests.support.backends import (
    UNSERVED_QUEUE,
    Backend,
    ClusterBackend,
    backends,
    end_status,
    flush_redis,
    redis_command,
)
from tests.support.redelivery import CALLED, held_item_workflow, token_of
from tests.support.waiting import until
from tests.support.workflows import (
    Fields,
    edit,
    fail,
    gated_registry,
    node_entry,
    node_status,
    of_type,
    recording_registry,
    split,
    success_count,
    wait,
    workflow,
)

AGGREGATOR = of_type("aggregator")
OUT = of_type("output", value="$g")
PASS_THROUGH = workflow("start>s s>n n>g g>out", s=split(), n=of_type("noop"), g=AGGREGATOR, out=OUT)
"""Collects every item unchanged."""

FORKED = workflow(
    "start>s s>i i>f:true i>j:false j>g:true f>g g>out",
    s=split(),
    i=of_type("conditional", expression="$item == 0"),
    j=of_type("conditional", expression="$item == 1"),
    f=fail(),
    g=AGGREGATOR,
    out=OUT,
)
"""Item 0 fails, item 1 reaches the aggregator, others reach a dead end."""


@backends("embedded", "redis")
def test_h_d1_inner_splits_of_outer_items_are_separate(backend: Backend) -> None:
    # fault: d1: a list is read without the index of the outer item
    # fault: d1-redis: the marks of items are stored without the path around their split
    document = workflow(
        "start>s s>t t>e e>h h>g g>out",
        s=split("$trigger.rows"),
        t=split("$item"),
        e=edit(v="{{ $item }}"),
        h=AGGREGATOR,
        g=AGGREGATOR,
        out=of_type("output", value="{{ [[x.v for x in row] for row in $g] }}"),
    )
    rows = [["A0", "A1", "A2"], ["B0", "B1"], []]
    assert backend.run(document, {"rows": rows})["output"] == rows


@backends("embedded", "redis")
def test_h_d2_lineage_ends_at_aggregator(backend: Backend) -> None:
    # fault: d2: the aggregator's token keeps the path of the last item
    # fault: d2-redis: the aggregator's token is emitted in the scope of the last item
    document = workflow("start>s s>e e>g g>a", s=split(), e=edit(x=1), g=AGGREGATOR, a=edit(y=2))
    result = backend.run(document, {"items": [1, 2]})
    assert (node_entry(result, "g")["lineage"], node_entry(result, "a")["lineage"]) == ([], [])
    assert node_entry(result, "e", 1)["lineage"][0]["total_items"] == 2


async def _redeliver_embedded(backend: Backend, name: str, item: int | None) -> Fields:
    """Send a finished token again while the second item waits, too briefly for the execution to leave memory."""
    calls: list[str] = []
    options: Fields = {"registry": recording_registry(calls), "in_place": False}
    async with backend.open(clock=VirtualClock(), **options) as engine:
        run = await engine.start(held_item_workflow(wait(1, "seconds")), {"items": [0, 1, 2]})
        await engine.settle()
        for _ in range(3):
            await engine.engine.backend.queue.send(run.id, [token_of(run, name, item)])
            await engine.settle()
        # Checked before the end: a node that ran twice may also keep the execution from ending.
        assert sorted(calls) == CALLED
        await run.end()
        return await run.document()


@backends("embedded")
def test_h_d3_redelivered_item_is_counted_once(backend: Backend) -> None:
    # fault: d3: a finished token is applied again, and arrivals are counted
    assert asyncio.run(_redeliver_embedded(backend, "i", 0))["output"] == [{"did": "c"}] * 3


@backends("embedded")
def test_h_d4_redelivered_split_fans_out_once(backend: Backend) -> None:
    # fault: d4: a finished split is run, applied and fanned out again
    result = asyncio.run(_redeliver_embedded(backend, "s", None))
    assert (len(result["output"]), success_count(result, "g")) == (3, 1)


def _redeliver_in_cluster(backend: ClusterBackend, name: str, item: int | None) -> Fields:
    """Send a finished token again while the second item runs, so that the execution stays in Redis."""
    calls: list[str] = []

    async def go() -> Fields:
        gate = asyncio.Event()
        async with backend.open(count=2, registry=gated_registry(calls, lambda: gate)) as engine:
            run = await engine.start(held_item_workflow(of_type("t.gate")), {"items": [0, 1, 2]})
            await engine.wait_for(lambda: "w@/s:1" in calls, 90)
            # The entry of the held token stays in the queue until its node has ended.
            await backend.wait_for_queue_length(1, "default")
            for _ in range(3):
                await engine.engine.backend.queue.send(run.id, [token_of(run, name, item)])
                await backend.wait_for_queue_length(1, "default")
            # Checked before the end: a node that ran twice may also keep the execution from ending.
            assert sorted(calls) == [*CALLED, "w@/s:1"]
            gate.set()
            await run.end()
            return await run.document()

    result = asyncio.run(go())
    assert sorted(calls) == [*CALLED, "w@/s:1"]
    return result


@backends("redis-travelling")
def test_h_d3_item_redelivered_in_cluster_is_counted_once(backend: ClusterBackend) -> None:
    # fault: d3-redis: a claim of a finished token returns `run`
    result = _redeliver_in_cluster(backend, "c", 0)
    assert result["output"] == [{"did": "c"}, {"did": "w"}, {"did": "c"}]


@backends("redis-travelling")
def test_h_d4_split_redelivered_in_cluster_fans_out_once(backend: ClusterBackend) -> None:
    # fault: d4-redis: a decision about a finished node is applied once more
    result = _redeliver_in_cluster(backend, "s", None)
    assert (len(result["output"]), success_count(result, "g")) == (3, 1)


@backends("embedded", "redis")
def test_h_d5_failed_and_dead_end_items_are_counted(backend: Backend) -> None:
    # fault: d5: a dead edge into the aggregator marks nothing
    # fault: d5-redis: only live edges are marked at the aggregator
    output = backend.run(FORKED, {"items": [0, 1, 2]})["output"]
    assert output is not None, "the aggregator never ran"
    assert (output[0]["error"]["code"], output[1:]) == ("BROKEN", [1, None])


@pytest.mark.parametrize("slow", [0, 1, 2])
@backends("embedded", "redis")
def test_h_d6_order_of_arrival_does_not_matter(backend: Backend, slow: int) -> None:
    # fault: d6: a dead edge into the aggregator ends the execution
    # fault: d6-redis: a dead edge that arrives last does not open the aggregator
    document = workflow(
        "start>s s>k k>w:true k>i:false w>i i>g:true g>out",
        s=split(),
        k=of_type("conditional", expression=f"$item == {slow}"),
        w=wait(1),
        i=of_type("conditional", expression="$item != 1"),
        g=AGGREGATOR,
        out=OUT,
    )
    assert backend.run(document, {"items": [0, 1, 2]})["output"] == [0, None, 2]


@backends("embedded", "redis")
def test_h_d7_forking_item_is_one_element(backend: Backend) -> None:
    # fault: d7: each in-edge of the aggregator yields an element
    # fault: d7-redis: the aggregator opens when as many edges as items have arrived
    body = {"s": split(), "a": edit(x="{{ $item }}"), "b": edit(y="{{ $item }}"), "g": AGGREGATOR, "out": OUT}
    together = workflow("start>s s>a s>b a>g b>g g>out", **body)
    apart = workflow("start>s s>a s>w w>b a>g b>g g>out", **body, w=wait(1))
    for document in (together, apart):
        output = backend.run(document, {"items": [1, 2]})["output"]
        assert output == [{"a": {"x": i}, "b": {"y": i}} for i in (1, 2)]


@backends("embedded", "redis")
def test_h_d8_two_aggregators_are_separate(backend: Backend) -> None:
    # fault: d8: an aggregator counts with the first fan-out of its scope
    # fault: d8-redis: a fan-out counts at the first aggregator of the plan
    document = workflow(
        "start>s s>w w>a a>g start>t t>b b>h",
        s=split(),
        w=wait(1),  # the second aggregator opens before the first
        a=edit(x="{{ $item }}"),
        g=AGGREGATOR,
        t=split("$trigger.others"),
        b=edit(x="{{ $item }}"),
        h=AGGREGATOR,
    )
    result = backend.run(document, {"items": [1, 2, 3], "others": [9]})
    assert result["output"] == {"g": [{"x": 1}, {"x": 2}, {"x": 3}], "h": [{"x": 9}]}
    shared = workflow(
        "start>s s>a s>b a>g b>h", s=split(), a=edit(x=1), b=edit(x=2), g=AGGREGATOR, h=AGGREGATOR
    )
    with pytest.raises(InvalidDocumentError):
        backend.run(shared)


@backends("embedded", "redis")
def test_h_d9_elements_keep_their_types(backend: Backend) -> None:
    # fault: d9: elements are turned into text when collected
    # fault: d9-redis: elements are turned into text when collected
    items = [1, "x", {"a": [True, None]}, 1.5, [], 12345678901234567, "\u0000", "{}"]
    assert backend.run(PASS_THROUGH, {"items": items})["output"] == items


@backends("embedded", "redis")
def test_h_d10_element_is_output_of_last_node(backend: Backend) -> None:
    # fault: d10: an element is an object by node
    # fault: d10-redis: an element is an object by node
    document = workflow(
        "start>s s>a a>b b>g g>out", s=split(), a=edit(x=1), b=edit(y="{{ $item }}"), g=AGGREGATOR, out=OUT
    )
    assert backend.run(document, {"items": [7]})["output"] == [{"y": 7}]


@backends("embedded", "redis")
def test_h_d11_item_values_are_not_visible_after_aggregator(backend: Backend) -> None:
    # fault: d11: the context holds the outputs of items too
    # fault: d11-redis: the context holds the outputs of items too
    def followed_by(b: Fields) -> Fields:
        return workflow("start>s s>a a>g g>b", s=split(), a=edit(x=1), g=AGGREGATOR, b=b)

    result = backend.run(followed_by(edit(y=2)), {"items": [1, 2]})
    assert set(result["context"]) == {"$trigger", "$start", "$g", "$b"}
    for leaked in ("$item", "$a.x"):
        with pytest.raises(InvalidDocumentError):
            backend.run(followed_by(edit(y=f"{{{{ {leaked} }}}}")))


@backends("embedded", "redis")
def test_h_d12_empty_split_skips_body_and_collects_nothing(backend: Backend) -> None:
    # fault: d12: an empty fan-out does not open its aggregator
    # fault: d12-redis: an empty fan-out does not open its aggregator
    document = workflow("start>s s>a a>g g>out", s=split(), a=edit(x="{{ $item }}"), g=AGGREGATOR, out=OUT)
    result = backend.run(document, {"items": []})
    assert (result["status"], result["output"], node_status(result, "a")) == ("completed", [], "skipped")


@backends("embedded", "redis")
def test_h_d13_items_may_take_days(backend: Backend) -> None:
    # fault: d13: the aggregator has its default timeout although a wait precedes it
    # fault: d13-redis: the aggregator has its default timeout although a wait precedes it
    document = workflow(
        "start>s s>w w>g g>out", s=split(), w=wait("{{ $item }}", "days"), g=AGGREGATOR, out=OUT
    )
    result = backend.run(document, {"items": [1, 2]})
    assert result["output"] == [1, 2]
    assert result["total_duration_ms"] >= 2 * 86_400_000


@backends("embedded", "redis")
def test_h_d15_empty_list_stays_a_list(backend: Backend) -> None:
    # fault: d15: an empty collection is written as an object
    # fault: d15-redis: an empty collection is written as an object
    assert backend.run(PASS_THROUGH, {"items": [[], {}]})["output"] == [[], {}]
    assert backend.run(PASS_THROUGH, {"items": []})["output"] == []


@backends("redis-travelling")
def test_h_d16_collected_items_survive_loss_of_redis(backend: ClusterBackend) -> None:
    # fault: d16: the running executions are not recovered after Redis has lost its data
    calls: list[str] = []
    document = workflow(
        "start>s s>c c>g g>out", s=split(), c=of_type("t.call"), g={**AGGREGATOR, "queue": UNSERVED_QUEUE},
        out=of_type("output", value="{{ len($g) }}"),
    )  # fmt: skip

    async def go() -> Any:
        async with backend.open(registry=recording_registry(calls)) as engine:
            run = await engine.start(document, {"items": [0, 1, 2]})
            await backend.wait_for_queue_length(1)
        await flush_redis()
        queues = ("default", UNSERVED_QUEUE)
        async with backend.open(registry=recording_registry(calls), queues=queues, in_place=True) as engine:
            assert await end_status(engine, run.id) == "completed"
            run._harness = engine
            return (await run.document())["output"]

    assert asyncio.run(go()) == 3
    assert sorted(calls) == CALLED


@backends("embedded", "redis")
def test_h_d17_failing_item_does_not_stop_others(backend: Backend) -> None:
    # fault: d17: the default policy inside a split is `halt`
    # fault: d17-redis: the default policy inside a split is `halt`
    result = backend.run(FORKED, {"items": [0, 0, 1, 1]})
    assert result["status"] == "completed"
    assert result["output"][2:] == [1, 1]


def _first_item_held(held: Fields) -> Fields:
    """Build a split whose first item passes through `held`."""
    return workflow(
        "start>s s>i i>w:true i>g:false w>g",
        s=split(),
        i=of_type("conditional", expression="$item == 0"),
        w=held,
        g=AGGREGATOR,
    )


async def _progress(engine: Harness, run: Run) -> list[tuple[str, int | None, int | None]]:
    """Return the aggregators of the explanation with the number of resolved and of all items."""
    waiting = await engine.engine.backend.state.explain(run.id)
    return [(each.node, each.done, each.total) for each in waiting if each.total]


@backends("embedded")
def test_h_d18_explain_shows_split_progress(backend: Backend) -> None:
    # fault: d18: `explain` leaves out how many items are resolved
    async def go() -> list[tuple[str, int | None, int | None]]:
        async with backend.open(clock=VirtualClock()) as engine:
            run = await engine.start(_first_item_held(wait(1)), {"items": [0, 1, 2]})
            await engine.settle()
            return await _progress(engine, run)

    assert ("g", 2, 3) in asyncio.run(go())


@backends("redis")
def test_h_d18_explain_in_cluster_shows_split_progress(backend: ClusterBackend) -> None:
    # fault: d18-redis: the number of resolved items is not read back
    document = _first_item_held({**of_type("t.call"), "queue": UNSERVED_QUEUE})

    async def go() -> list[tuple[str, int | None, int | None]]:
        async with backend.open(registry=recording_registry([])) as engine:
            run = await engine.start(document, {"items": [0, 1, 2]})

            async def others_done() -> bool:
                facts = await run.facts()
                return len(facts) >= 4 and await backend.queue_length() == 1 and engine.engine.busy == 0

            await until(others_done, "the other items are resolved", 90.0)
            return await _progress(engine, run)

    assert ("g", 2, 3) in asyncio.run(go())


async def _largest_root_row(run: Run) -> int:
    """Return the size of the largest result outside of the items."""
    rows = [each.fact for each in await run.facts() if isinstance(each.fact, NodeResult)]
    return max(len(encode_fact(each)) for each in rows if not each.path)


@backends("embedded")
def test_h_d20_rows_do_not_grow_with_item_count(backend: Backend) -> None:
    # fault: d20: an output is stored in its row whatever its size
    async def go() -> tuple[str, int]:
        async with backend.open() as engine:
            document = workflow("start>s s>n n>g", s=split(), n=of_type("noop"), g=AGGREGATOR)
            run = await engine.start(document, {"items": ["x" * 100] * 5_000})
            end = await run.end(60)
            return end.status, await _largest_root_row(run)

    status, largest = asyncio.run(go())
    assert status == "completed"
    assert largest < 2_000


@backends("redis-travelling")
def test_h_d20_redis_fields_do_not_grow_with_item_count(backend: ClusterBackend) -> None:
    # fault: d20-redis: the marks of all items are one field
    settings = backend.settings
    aggregator = {**AGGREGATOR, "queue": UNSERVED_QUEUE}
    document = workflow("start>s s>n n>g", s=split(), n=of_type("noop"), g=aggregator)

    async def go() -> tuple[int, int]:
        async with backend.open() as engine:
            run = await engine.start(document, {"items": ["x" * 100] * 2_500})
            await backend.wait_for_queue_length(1)
            key = KeySpace(settings.prefix).of(run.id)[0]
            fields = await redis_command("HGETALL", key)
            return max(map(len, fields)), await _largest_root_row(run)

    field, row = asyncio.run(go())
    assert field < 1_500
    assert row < 2_000


@backends("embedded", "redis")
def test_h_d21_slow_item_blocks_only_its_slot(backend: Backend) -> None:
    # fault: d21: the window is refilled when all items of a batch have ended
    # fault: d21-redis: the window is refilled when all items of a batch have ended
    document = workflow(
        "start>s s>i i>l:true i>q:false l>g q>g g>out",
        s=split(max_in_flight=2),
        i=of_type("conditional", expression="$item == 0"),
        l=wait(10),
        q=wait(1),
        g=AGGREGATOR,
        out=OUT,
    )
    result = backend.run(document, {"items": list(range(6))})
    assert result["output"] == list(range(6))
    assert 36_000_000 <= result["total_duration_ms"] < 37_000_000
