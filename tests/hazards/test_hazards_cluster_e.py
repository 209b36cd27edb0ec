"""Hazards E on a cluster: merge."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from rune.core.execution.fact import NodeResult
from tests.hazards import merging
from tests.hazards.building import counting, kind, workflow
from tests.hazards.clustered import LATER, engines, fresh, ran, status_of, until, until_queued, wipe

passed_on = partial(ran, in_place=False)
"""Every token goes through the queue, also where one engine could go on by itself."""


def test_h_e1_on_a_cluster_a_merge_behind_an_untaken_branch_does_not_wait() -> None:
    # fault: cluster-e1: a dead edge does not arrive
    merging.behind_an_untaken_branch_it_does_not_wait(passed_on)


def test_h_e2_on_a_cluster_two_edges_of_one_source_are_two_parties() -> None:
    # fault: cluster-e2: an arrival is kept by its source
    merging.two_edges_of_one_source_are_two_parties(passed_on)


def test_h_e3_on_a_cluster_the_timeout_of_a_race_counts_from_its_scope_and_fires() -> None:
    # fault: cluster-e3: the timeout of a race runs from its first arrival
    merging.the_timeout_of_a_race_counts_from_its_scope(ran)


def test_h_e4_on_a_cluster_an_arrival_after_the_timeout_brings_nothing_back() -> None:
    # fault: cluster-e4: a join that was given up keeps its barrier, which then opens
    merging.an_arrival_after_the_timeout_brings_nothing_back(ran)


def test_h_e5_a_join_outlives_the_loss_of_what_it_has_sent() -> None:
    # fault: cluster-e5: what was running is looked at again at no time
    calls: list[str] = []
    settings = fresh()
    join = {**kind("t.call"), "queue": LATER}
    document = workflow("start>a start>b a>c b>c", a=kind("t.call"), b=kind("t.call"), c=join)

    async def go() -> str:
        async with engines(settings, registry=counting(calls)) as cluster:
            run = await cluster.start(document)
            await until_queued(settings, 1)
        await wipe()
        async with engines(settings, registry=counting(calls), queues=("default", LATER)) as cluster:
            return await status_of(cluster, run.id)

    assert asyncio.run(go()) == "completed"
    assert sorted(calls) == ["a@/", "b@/", "c@/"]


def test_h_e6_on_a_cluster_a_merge_inside_a_split_keeps_its_items_apart() -> None:
    # fault: cluster-e6: the barriers of all items are one
    merging.inside_a_split_it_keeps_the_items_apart(passed_on)


def test_h_e7_on_a_cluster_a_wait_before_a_merge_is_known_by_name() -> None:
    # fault: cluster-e7: an arrival is named after the node that made its payload
    merging.a_wait_before_it_is_known_by_name(ran)


@pytest.mark.parametrize("slow", ["a", "b"])
def test_h_e8_on_a_cluster_of_conflicting_keys_the_later_edge_wins_whoever_comes_first(slow: str) -> None:
    # fault: cluster-e8: the arrivals of a join are taken in the order in which they came
    merging.of_conflicting_keys_the_later_edge_wins(ran, slow)


def test_h_e9_on_a_cluster_the_output_of_a_merge_is_seen_behind_it() -> None:
    # fault: cluster-e9: the output of a merge is not in the context
    merging.its_output_is_seen_behind_it(passed_on)


def test_h_e10_on_a_cluster_waiting_and_untaken_branches_are_not_shown_as_done() -> None:
    # fault: cluster-e10: what was skipped is shown as a success
    settings = fresh()

    async def go() -> None:
        async with engines(settings) as cluster:
            run = await cluster.start(merging.HALFWAY)

            async def only_waits() -> bool:
                facts = [row.fact for row in await run.facts()]
                ended = sum(isinstance(each, NodeResult) for each in facts)
                return ended == 2 and len(facts) == 3 and cluster.engine.busy == 0

            await until(only_waits)
            await merging.halfway_only_what_is_done_is_shown_as_done(cluster, run)

    asyncio.run(go())


def test_h_e11_on_a_cluster_a_race_is_won_once_however_late_the_loser_comes() -> None:
    # fault: cluster-e11: that a barrier was opened is forgotten, and with it that its node is done
    merging.a_race_is_won_once(ran)


def test_h_e12_on_a_cluster_cancelled_losers_make_no_effects() -> None:
    # fault: cluster-e12: a claim does not ask for cancelled regions
    merging.cancelled_losers_make_no_effects(ran)
