"""Hazards E: merge."""

from __future__ import annotations

import asyncio
import pathlib

import pytest

from rune.testing.clock import VirtualClock
from rune.testing.harness import harness
from tests.hazards import merging
from tests.hazards.building import ran


def test_h_e1_a_merge_behind_an_untaken_branch_does_not_wait() -> None:
    # fault: e1: a dead edge does not arrive
    merging.behind_an_untaken_branch_it_does_not_wait(ran)


def test_h_e2_two_edges_of_one_source_are_two_parties() -> None:
    # fault: e2: of several edges of one source only the last counts
    merging.two_edges_of_one_source_are_two_parties(ran)


def test_h_e3_the_timeout_of_a_race_counts_from_its_scope_and_fires() -> None:
    # fault: e3: the timeout of a race runs from its first arrival
    merging.the_timeout_of_a_race_counts_from_its_scope(ran)


def test_h_e4_an_arrival_after_the_timeout_brings_nothing_back() -> None:
    # fault: e4: a join that was given up keeps its barrier, and what is done is done again
    merging.an_arrival_after_the_timeout_brings_nothing_back(ran)


def test_h_e6_a_merge_inside_a_split_keeps_its_items_apart() -> None:
    # fault: e6: all barriers are those of the root scope
    merging.inside_a_split_it_keeps_the_items_apart(ran)


def test_h_e7_a_wait_before_a_merge_is_known_by_name() -> None:
    # fault: e7: an arrival is named after the node that made its payload
    merging.a_wait_before_it_is_known_by_name(ran)


@pytest.mark.parametrize("slow", ["a", "b"])
def test_h_e8_of_conflicting_keys_the_later_edge_wins_whoever_comes_first(slow: str) -> None:
    # fault: e8: parties are taken in the order in which they came
    merging.of_conflicting_keys_the_later_edge_wins(ran, slow)


def test_h_e9_the_output_of_a_merge_is_seen_behind_it() -> None:
    # fault: e9: the output of a merge is not in the context
    merging.its_output_is_seen_behind_it(ran)


def test_h_e10_waiting_and_untaken_branches_are_not_shown_as_done(tmp_path: pathlib.Path) -> None:
    # fault: e10: what was skipped is shown as a success
    async def go() -> None:
        async with harness(tmp_path, clock=VirtualClock()) as engine:
            run = await engine.start(merging.HALFWAY)
            await engine.settle()
            await merging.halfway_only_what_is_done_is_shown_as_done(engine, run)

    asyncio.run(go())


def test_h_e11_a_race_is_won_once_however_late_the_loser_comes() -> None:
    # fault: e11: the mark of an opened barrier is dropped with its data, and what is done is done again
    merging.a_race_is_won_once(ran)


def test_h_e12_cancelled_losers_make_no_effects() -> None:
    # fault: e12: `touch` does not ask for cancelled regions
    merging.cancelled_losers_make_no_effects(ran)
