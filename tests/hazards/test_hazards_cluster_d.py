"""Hazards D on a cluster: split and aggregator. D14 and D19 are matters of Redis alone: test_hazards_redis.py."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rune.adapters.redis.keys import KeySpace
from tests.hazards import splitting
from tests.hazards.building import counting, gated, kind, runs, splits, workflow
from tests.hazards.clustered import (
    LATER,
    ask,
    engines,
    fresh,
    queued,
    ran,
    status_of,
    until,
    until_queued,
    wipe,
)


def test_h_d1_on_a_cluster_inner_splits_of_different_items_share_nothing() -> None:
    # fault: cluster-d1: the marks of items are kept without the path around their split
    splitting.inner_splits_of_different_items_share_nothing(ran)


def test_h_d2_on_a_cluster_the_lineage_ends_at_the_aggregator() -> None:
    # fault: cluster-d2: the aggregator's token is emitted in the scope of the last item
    splitting.the_lineage_ends_at_the_aggregator(ran)


def _sent_again(name: str, item: int | None) -> dict[str, Any]:
    """A split whose second item is held, so that its execution does not go to sleep; meanwhile a message of a token
    that is done comes again."""
    calls: list[str] = []
    settings = fresh()

    async def go() -> dict[str, Any]:
        gate = asyncio.Event()
        registry = gated(calls, lambda: gate)
        async with engines(settings, count=2, registry=registry, in_place=False) as cluster:
            document = splitting.called_and_held(kind("t.gate"))
            run = await cluster.start(document, {"items": [0, 1, 2]})
            await cluster.wait_for(lambda: "w@/s:1" in calls, 90)
            await until_queued(settings, 1, "default")  # its message, which is there until it has ended
            for _ in range(3):
                await cluster.engine.backend.queue.send(run.id, [splitting.token(run, name, item)])
                await until_queued(settings, 1, "default")
            # Before the end: what ran twice may also keep the execution from ending.
            assert sorted(calls) == [*splitting.CALLED, "w@/s:1"]
            gate.set()
            await run.end()
            return await run.document()

    told = asyncio.run(go())
    assert sorted(calls) == [*splitting.CALLED, "w@/s:1"]
    return told


def test_h_d3_on_a_cluster_a_redelivered_item_is_counted_once() -> None:
    # fault: cluster-d3: a claim answers that a token which is done may run
    assert _sent_again("c", 0)["output"] == [{"did": "c"}, {"did": "w"}, {"did": "c"}]


def test_h_d4_on_a_cluster_a_redelivered_split_fans_out_once() -> None:
    # fault: cluster-d4: a decision about a node that is done is carried out once more
    told = _sent_again("s", None)
    assert (len(told["output"]), runs(told, "g")) == (3, 1)


def test_h_d5_on_a_cluster_failed_and_dead_ending_items_are_counted() -> None:
    # fault: cluster-d5: only live edges are marked at the aggregator
    splitting.failed_and_dead_ending_items_are_counted(ran)


@pytest.mark.parametrize("slow", [0, 1, 2])
def test_h_d6_on_a_cluster_the_order_of_arrival_changes_nothing(slow: int) -> None:
    # fault: cluster-d6: a dead edge that comes last does not open the aggregator
    splitting.the_order_of_arrival_changes_nothing(ran, slow)


def test_h_d7_on_a_cluster_an_item_that_forks_is_one_item() -> None:
    # fault: cluster-d7: the aggregator opens when as many edges as items have arrived
    splitting.an_item_that_forks_is_one_item(ran)


def test_h_d8_on_a_cluster_two_aggregators_share_nothing() -> None:
    # fault: cluster-d8: a fan-out counts at the first aggregator of the plan
    splitting.two_aggregators_share_nothing(ran)


def test_h_d9_on_a_cluster_results_are_values_and_not_text() -> None:
    # fault: cluster-d9: elements are made text when gathered
    splitting.results_are_values_and_not_text(ran)


def test_h_d10_on_a_cluster_an_element_is_what_the_item_gave() -> None:
    # fault: cluster-d10: an element is an object by node
    splitting.an_element_is_what_the_item_gave(ran)


def test_h_d11_on_a_cluster_nothing_of_the_items_is_seen_behind_the_aggregator() -> None:
    # fault: cluster-d11: the context holds the outputs of items too
    splitting.nothing_of_the_items_is_seen_behind_the_aggregator(ran)


def test_h_d12_on_a_cluster_an_empty_list_skips_the_body_and_gathers_nothing() -> None:
    # fault: cluster-d12: a fan-out of nothing does not open its aggregator
    splitting.an_empty_list_skips_the_body_and_gathers_nothing(ran)


def test_h_d13_on_a_cluster_items_may_take_days() -> None:
    # fault: cluster-d13: the aggregator has its default timeout although a wait lies before it
    splitting.items_may_take_days(ran)


def test_h_d15_on_a_cluster_an_empty_list_stays_a_list() -> None:
    # fault: cluster-d15: nothing gathered is written as an object
    splitting.an_empty_list_stays_a_list(ran)


def test_h_d16_a_list_outlives_the_loss_of_its_barrier() -> None:
    # fault: cluster-d16: after a loss nobody reads the roll of what was running
    calls: list[str] = []
    settings = fresh()
    document = workflow(
        "start>s s>c c>g g>out", s=splits(), c=kind("t.call"), g={**kind("aggregator"), "queue": LATER},
        out=kind("output", value="{{ len($g) }}"),
    )  # fmt: skip

    async def go() -> Any:
        async with engines(settings, registry=counting(calls), in_place=False) as cluster:
            run = await cluster.start(document, {"items": [0, 1, 2]})
            await until_queued(settings, 1)
        await wipe()
        async with engines(settings, registry=counting(calls), queues=("default", LATER)) as cluster:
            assert await status_of(cluster, run.id) == "completed"
            run._harness = cluster
            return (await run.document())["output"]

    assert asyncio.run(go()) == 3
    assert sorted(calls) == splitting.CALLED


def test_h_d17_on_a_cluster_one_failing_item_stops_nobody() -> None:
    # fault: cluster-d17: the default policy inside a split is `halt`
    splitting.one_failing_item_stops_nobody(ran)


def test_h_d18_on_a_cluster_progress_is_part_of_the_explanation() -> None:
    # fault: cluster-d18: how many items are resolved is not read back
    document = splitting.first_held({**kind("t.call"), "queue": LATER})
    settings = fresh()

    async def go() -> list[tuple[str, int | None, int | None]]:
        async with engines(settings, registry=counting([])) as cluster:
            run = await cluster.start(document, {"items": [0, 1, 2]})

            async def others_done() -> bool:
                return (
                    len(await run.facts()) >= 4 and await queued(settings) == 1 and cluster.engine.busy == 0
                )

            await until(others_done)
            return await splitting.progress(cluster, run)

    assert ("g", 2, 3) in asyncio.run(go())


def test_h_d20_on_a_cluster_nothing_grows_with_the_number_of_items() -> None:
    # fault: cluster-d20: the marks of all items are one field
    settings = fresh()
    document = workflow(
        "start>s s>n n>g", s=splits(), n=kind("noop"), g={**kind("aggregator"), "queue": LATER}
    )

    async def go() -> tuple[int, int]:
        async with engines(settings, in_place=False) as cluster:
            run = await cluster.start(document, {"items": ["x" * 100] * 2_500})
            await until_queued(settings, 1)
            fields = await ask("HGETALL", KeySpace(settings.prefix, settings.partitions).of(run.id)[0])
            return max(map(len, fields)), await splitting.largest_row(run)

    field, row = asyncio.run(go())
    assert field < 1_500
    assert row < 2_000


def test_h_d21_on_a_cluster_a_slow_item_holds_up_only_its_place() -> None:
    # fault: cluster-d21: the window is refilled when all of a batch have ended
    splitting.a_slow_item_holds_up_only_its_place(ran)
