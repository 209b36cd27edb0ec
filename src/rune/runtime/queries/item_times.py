"""When the items of a split ran: how long they took, and how many were under way at a time."""

from __future__ import annotations

from itertools import accumulate

import msgspec

from rune.runtime.queries.overview import Items

STEPS = 60
"""Steps of equal length between the first start and the last end."""


class Times(msgspec.Struct, frozen=True):
    """The times of the items that have begun. `began` and `ended` are ms after the start of the execution."""

    count: int
    began: int
    ended: int
    shortest: int
    median: int
    p95: int
    longest: int
    density: list[int]


def item_times(items: Items) -> Times | None:
    """Return the times of the items of a split; None if none has begun."""
    pairs = [(start, end) for start, end in zip(items.starts, items.ends, strict=True) if start]
    if not pairs:
        return None
    durations = sorted(end - start for start, end in pairs)
    began, ended = min(pairs)[0], max(end for _, end in pairs)
    return Times(
        count=len(pairs),
        began=began - 1,
        ended=ended - 1,
        shortest=durations[0],
        median=_quantile(durations, 0.5),
        p95=_quantile(durations, 0.95),
        longest=durations[-1],
        density=_density(pairs, began, ended),
    )


def _quantile(ordered: list[int], share: float) -> int:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def _density(pairs: list[tuple[int, int]], began: int, ended: int) -> list[int]:
    """Count the items that were under way in each step, by what changes from one step to the next."""
    width = (ended - began) / STEPS or 1
    changes = [0] * (STEPS + 1)
    for start, end in pairs:
        changes[min(STEPS - 1, int((start - began) / width))] += 1
        changes[min(STEPS - 1, int((end - began) / width)) + 1] -= 1
    return list(accumulate(changes[:STEPS]))
