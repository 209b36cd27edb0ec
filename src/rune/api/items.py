"""The items of a split."""

from __future__ import annotations

from rune.api.base import View, absent


class SplitItemView(View, frozen=True, kw_only=True):
    """An item and the states of the nodes in it."""

    item: str
    index: int
    state: str
    code: str = absent("")
    attempts: int = absent(0)
    started_at: str | None = absent(None)
    duration_ms: int | None = absent(None)
    nodes: dict[str, str] = absent({})


class SplitItemPage(View, frozen=True, kw_only=True):
    """A page of items in their order."""

    items: list[SplitItemView]
    next: str | None = absent(None)


class CodeCount(View, frozen=True, kw_only=True):
    """How many items have an error code. `byte` is its value in packed form; 255 is shared by all further ones."""

    code: str
    byte: int
    count: int


class ItemTimes(View, frozen=True, kw_only=True):
    """When the items that have begun ran. `density` is how many were under way in each of 60 steps of equal length from
    `began_at` to `ended_at`."""

    items: int
    began_at: str
    ended_at: str
    min_ms: int
    median_ms: int
    p95_ms: int
    max_ms: int
    density: list[int]


class Facets(View, frozen=True, kw_only=True):
    """The items of a split, counted. A packed state is a position in `legend`. `times` is null unless asked for."""

    number: int
    items: int
    states: dict[str, int]
    codes: list[CodeCount]
    legend: list[str]
    times: ItemTimes | None = None
