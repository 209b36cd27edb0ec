"""Hazards D: split and aggregator."""

from __future__ import annotations

import asyncio
import pathlib
from typing import Any

import pytest

from rune.testing.clock import VirtualClock
from rune.testing.harness import harness
from tests.hazards import splitting
from tests.hazards.building import counting, kind, ran, runs, splits, waits, workflow


def test_h_d1_inner_splits_of_different_items_share_nothing() -> None:
    # fault: d1: a list is read without the index of the outer item
    splitting.inner_splits_of_different_items_share_nothing(ran)


def test_h_d2_the_lineage_ends_at_the_aggregator() -> None:
    # fault: d2: the aggregator's token keeps the path of the last item
    splitting.the_lineage_ends_at_the_aggregator(ran)


async def _again(folder: pathlib.Path, name: str, item: int | None) -> dict[str, Any]:
    """A split whose second item waits, too briefly for its execution to leave memory; meanwhile a message of a token
    that is done comes again."""
    calls: list[str] = []
    document = splitting.called_and_held(waits(1, "seconds"))
    async with harness(folder, clock=VirtualClock(), registry=counting(calls), in_place=False) as engine:
        run = await engine.start(document, {"items": [0, 1, 2]})
        await engine.settle()
        for _ in range(3):
            await engine.engine.backend.queue.send(run.id, [splitting.token(run, name, item)])
            await engine.settle()
        # Before the end: what ran twice may also keep the execution from ending.
        assert sorted(calls) == splitting.CALLED
        await run.end()
        return await run.document()


def test_h_d3_a_redelivered_item_is_counted_once(tmp_path: pathlib.Path) -> None:
    # fault: d3: a token that is done is applied again, and arrivals are counted
    assert asyncio.run(_again(tmp_path, "i", 0))["output"] == [{"did": "c"}] * 3


def test_h_d4_a_redelivered_split_fans_out_once(tmp_path: pathlib.Path) -> None:
    # fault: d4: a split that is done is run, applied and spread again
    told = asyncio.run(_again(tmp_path, "s", None))
    assert (len(told["output"]), runs(told, "g")) == (3, 1)


def test_h_d5_failed_and_dead_ending_items_are_counted() -> None:
    # fault: d5: a dead edge into the aggregator marks nothing
    splitting.failed_and_dead_ending_items_are_counted(ran)


@pytest.mark.parametrize("slow", [0, 1, 2])
def test_h_d6_the_order_of_arrival_changes_nothing(slow: int) -> None:
    # fault: d6: a dead edge into the aggregator ends the execution
    splitting.the_order_of_arrival_changes_nothing(ran, slow)


def test_h_d7_an_item_that_forks_is_one_item() -> None:
    # fault: d7: each in-edge of the aggregator gives an element
    splitting.an_item_that_forks_is_one_item(ran)


def test_h_d8_two_aggregators_share_nothing() -> None:
    # fault: d8: an aggregator counts with the first fan-out of its scope
    splitting.two_aggregators_share_nothing(ran)


def test_h_d9_results_are_values_and_not_text() -> None:
    # fault: d9: elements are made text when gathered
    splitting.results_are_values_and_not_text(ran)


def test_h_d10_an_element_is_what_the_item_gave() -> None:
    # fault: d10: an element is an object by node
    splitting.an_element_is_what_the_item_gave(ran)


def test_h_d11_nothing_of_the_items_is_seen_behind_the_aggregator() -> None:
    # fault: d11: the context holds the outputs of items too
    splitting.nothing_of_the_items_is_seen_behind_the_aggregator(ran)


def test_h_d12_an_empty_list_skips_the_body_and_gathers_nothing() -> None:
    # fault: d12: a fan-out of nothing does not open its aggregator
    splitting.an_empty_list_skips_the_body_and_gathers_nothing(ran)


def test_h_d13_items_may_take_days() -> None:
    # fault: d13: the aggregator has its default timeout although a wait lies before it
    splitting.items_may_take_days(ran)


def test_h_d15_an_empty_list_stays_a_list() -> None:
    # fault: d15: nothing gathered is written as an object
    splitting.an_empty_list_stays_a_list(ran)


def test_h_d17_one_failing_item_stops_nobody() -> None:
    # fault: d17: the default policy inside a split is `halt`
    splitting.one_failing_item_stops_nobody(ran)


def test_h_d18_progress_is_part_of_the_explanation(tmp_path: pathlib.Path) -> None:
    # fault: d18: `explain` leaves out how many items are resolved
    async def go() -> list[tuple[str, int | None, int | None]]:
        async with harness(tmp_path, clock=VirtualClock()) as engine:
            run = await engine.start(splitting.first_held(waits(1)), {"items": [0, 1, 2]})
            await engine.settle()
            return await splitting.progress(engine, run)

    assert ("g", 2, 3) in asyncio.run(go())


def test_h_d20_no_row_grows_with_the_number_of_items(tmp_path: pathlib.Path) -> None:
    # fault: d20: an output is kept in its row whatever its size
    async def go() -> tuple[str, int]:
        async with harness(tmp_path) as engine:
            document = workflow("start>s s>n n>g", s=splits(), n=kind("noop"), g=kind("aggregator"))
            run = await engine.start(document, {"items": ["x" * 100] * 5_000})
            end = await run.end(60)
            return end.status, await splitting.largest_row(run)

    ended, largest = asyncio.run(go())
    assert ended == "completed"
    assert largest < 2_000


def test_h_d21_a_slow_item_holds_up_only_its_place() -> None:
    # fault: d21: the window is refilled when all of a batch have ended
    splitting.a_slow_item_holds_up_only_its_place(ran)
