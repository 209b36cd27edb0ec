"""What a followed execution sends beside its events: what runs now, and the counts of its splits."""

from __future__ import annotations

from typing import Annotated, Literal

from rune.api.base import Known, View, absent
from rune.core.execution.token import Frame


class RunningView(View, frozen=True, kw_only=True):
    """A node that runs now. `since` is when the attempt began, `progress` what the node last reported."""

    node_id: str
    lineage: tuple[Frame, ...] = absent(())
    attempt: int = absent(1)
    since: str = absent("")
    worker: str = absent("")
    progress: str | None = absent(None)


class LineView(View, frozen=True, kw_only=True):
    """A line that a node run logged."""

    node_id: str
    lineage: tuple[Frame, ...] = absent(())
    attempt: int = absent(1)
    at: str = absent("")
    level: str = absent("info")
    message: str = absent("")


class NowView(View, frozen=True, kw_only=True):
    """All nodes of an execution that run at the moment, and the lines logged since the previous event of this kind."""

    event: Annotated[str, Known(Literal["now"])] = "now"
    at: str
    running: list[RunningView] = absent([])
    lines: list[LineView] = absent([])


class Failed(View, frozen=True, kw_only=True):
    """A node that failed in one item."""

    node_id: str
    lineage: str
    code: str
    message: str


class SplitRollup(View, frozen=True, kw_only=True):
    """A split over all lineages, with the counts of the graph: its items, and the runs of each node in it, by state.
    `ended`: how many of those runs have ended; `rate`: how many of them had a result, per second."""

    failures: list[Failed]
    split_node_id: str
    items: int
    done: int = absent(0)
    failed_items: int = absent(0)
    counts: dict[str, int] = absent({})
    nodes: dict[str, dict[str, int]]
    ended: int
    rate: float


class RollupPage(View, frozen=True, kw_only=True):
    """The roll-ups of an execution, one per split that fanned out."""

    splits: list[SplitRollup]


class Rollup(View, frozen=True, kw_only=True):
    """The splits of an execution after the event `number`, in place of the events inside of them. It takes the place of
    the counts of an earlier roll-up or graph as a whole."""

    number: int
    splits: list[SplitRollup]


class Missed(View, frozen=True, kw_only=True):
    """Changes of executions may be missing: the list of executions has to be read again."""
