"""The items of a split in short form.

One byte per item has the state, error code, duration or attempts, of the item or of a node in it. The times tell how
long items took, and how many were under way at a time.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from itertools import accumulate
from typing import Literal, TypeVar

import msgspec

from rune.runtime.queries.overview import Items, Overview

Property = Literal["state", "duration", "attempts", "code"]
MAX_BYTE = 255
STEPS_PER_DOUBLING = 8
"""A duration of d ms is the byte 1 + round(8 * log2(d + 1)), at most 255; 0 is unknown."""

MAX_KEPT = 8
"""Sets of bytes that are kept for the items of one split."""

K = TypeVar("K", bound=Hashable)


class _Memo(dict[K, int]):
    """Bytes by key, computed when they are first needed; `map` looks them up without a call in Python."""

    def __init__(self, make: Callable[[K], int]) -> None:
        self._make = make

    def __missing__(self, key: K) -> int:
        value = self[key] = self._make(key)
        return value


def item_bytes(overview: Overview, items: Items, by: Property, node: int | None = None) -> bytes:
    """Return one byte per item, in the order of the items. They are kept until the next fact."""
    known = items.packed.get((by, node))
    if known is None or known[0] != overview.number:
        if len(items.packed) >= MAX_KEPT:
            items.packed.clear()
        known = items.packed[(by, node)] = overview.number, _pack(overview, items, by, node)
    return known[1]


def _pack(overview: Overview, items: Items, by: Property, node: int | None) -> bytes:
    if by == "state":
        return _states(overview, items, node)
    if by == "code":
        return _codes(items, node)
    if by == "attempts":
        columns = [each.attempts for at, each in items.columns.items() if node in (None, at)]
        return bytes(columns[0]) if len(columns) == 1 else bytes(map(max, zip(*columns, strict=True)))
    return _durations(items, node)


def _states(overview: Overview, items: Items, node: int | None) -> bytes:
    at = None if node is None else items.nodes.index(node)

    def state(signature: tuple[int, ...]) -> int:
        found = overview.states(items, signature)
        return found.worst if at is None else found.states[at]

    return bytes(map(_Memo(state).__getitem__, overview.signatures(items)))


def _codes(items: Items, node: int | None) -> bytes:
    columns = [each.codes for at, each in items.columns.items() if node in (None, at)]
    if len(columns) == 1:
        return bytes(map(_Memo(_capped).__getitem__, columns[0]))
    return bytes(map(_Memo(_first_code).__getitem__, zip(*columns, strict=True)))


def _durations(items: Items, node: int | None) -> bytes:
    byte = _Memo(duration_byte)
    if node is None:
        spans = (end - start if start else -1 for start, end in zip(items.starts, items.ends, strict=True))
        return bytes(map(byte.__getitem__, spans))
    column = items.columns[node]
    spans = (ms if attempts else -1 for ms, attempts in zip(column.durations, column.attempts, strict=True))
    return bytes(map(byte.__getitem__, spans))


def duration_byte(ms: int) -> int:
    """Return the byte of a duration; a negative one is unknown."""
    return 0 if ms < 0 else min(MAX_BYTE, 1 + round(STEPS_PER_DOUBLING * math.log2(ms + 1)))


def _first_code(row: tuple[int, ...]) -> int:
    return _capped(next((each for each in row if each), 0))


def _capped(value: int) -> int:
    return min(MAX_BYTE, value)


def tally(found: Iterable[int]) -> dict[int, int]:
    """Return how often each byte occurs."""
    return dict(sorted(Counter(found).items()))


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
