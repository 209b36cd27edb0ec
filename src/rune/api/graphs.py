"""The states of the nodes and edges of an execution."""

from __future__ import annotations

from typing import Annotated, Literal

from rune.api.base import Known, View, absent


class NodeState(View, frozen=True, kw_only=True, omit_defaults=True):
    """A node. Inside a split `counts` has the number of items by state, and `state` is the most important of them; with
    a lineage it is the state in that item. `worker` and `progress` are those of a run that a worker reports."""

    state: str
    attempts: int = 0
    started_at: str | None = None
    duration_ms: int | None = None
    due: str | None = None
    code: str = ""
    worker: str = ""
    progress: str = ""
    counts: dict[str, int] | None = None


class SplitState(View, frozen=True, kw_only=True):
    """A split: its items in all lineages, or in the given one, by their worst state. `done` counts those in which
    nothing is open, `failed_items` those that count as failed in the execution: no node in them handled an error."""

    items: int
    done: int
    failed_items: int = absent(0)
    counts: dict[str, int]


class GraphState(View, frozen=True, kw_only=True):
    """The states of all nodes and edges after an event. A live view continues with the events after `number`."""

    number: int
    status: str
    nodes: dict[str, NodeState]
    edges: dict[str, Annotated[str, Known(Literal["pending", "alive", "dead", "error"])]]
    splits: dict[str, SplitState] = absent({})
