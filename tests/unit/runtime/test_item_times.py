"""Times of the items of a split: durations, and how many were under way at a time."""

from __future__ import annotations

from array import array

from rune.runtime.queries.overview import STEPS, Items, item_times


def items(*spans: tuple[int, int] | None) -> Items:
    """Items with their first start and last end, in ms after the start of the execution; None: not begun."""
    found = Items(0, (), (1,), ())
    found.grow(len(spans))
    found.starts = array("I", [0 if each is None else each[0] + 1 for each in spans])
    found.ends = array("I", [0 if each is None else each[1] + 1 for each in spans])
    return found


def test_times_of_items_are_counted_in_steps() -> None:
    found = item_times(items((100, 160), (130, 160), None, (100, 700)))

    assert found is not None
    assert (found.count, found.began, found.ended) == (3, 100, 700)
    assert (found.shortest, found.median, found.p95, found.longest) == (30, 60, 600, 600)
    # One step is 10 ms: two items from the start, a third from 130, one alone after 160.
    assert found.density[:8] == [2, 2, 2, 3, 3, 3, 3, 1]
    assert found.density[8:] == [1] * (STEPS - 8)


def test_items_that_took_no_time_are_all_in_the_first_step() -> None:
    found = item_times(items((5, 5), (5, 5)))

    assert found is not None
    assert (found.shortest, found.longest) == (0, 0)
    assert found.density == [2] + [0] * (STEPS - 1)


def test_items_that_have_not_begun_have_no_times() -> None:
    assert item_times(items(None, None)) is None
