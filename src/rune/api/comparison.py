"""Differences between two executions, and between two versions of a workflow."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from rune.api.base import Known, View, absent
from rune.api.executions import ErrorView

Kind = Literal["added", "removed", "changed", "reordered"]


class Field(View, frozen=True, kw_only=True):
    """One value that differs; `path` is relative to the node, the edge, the settings or the document."""

    path: str
    kind: Annotated[str, Known(Kind)]
    before: Any = None
    after: Any = None


class Change(View, frozen=True, kw_only=True):
    """A node, an edge, the settings or the document that was added, removed or changed in some fields."""

    what: Annotated[str, Known(Literal["document", "settings", "node", "edge"])]
    id: str
    kind: Annotated[str, Known(Kind)]
    before: dict[str, Any] | None
    after: dict[str, Any] | None
    fields: tuple[Field, ...] = ()


class Compared(View, frozen=True, kw_only=True):
    """The differences between two versions."""

    workflow_id: str
    before: int
    after: int
    changes: list[Change]


class RunChange(View, frozen=True, kw_only=True):
    """A node run that differs in one lineage; null on the side where the node has not ended."""

    node_id: str
    lineage: str
    fields: list[str]
    before: dict[str, Any] | None
    after: dict[str, Any] | None


class Difference(View, frozen=True, kw_only=True):
    """The differences between two executions."""

    before: str
    after: str
    status: tuple[str, str]
    same_input: bool
    definition: list[Change]
    nodes: list[RunChange]


class ComparedRun(View, frozen=True, kw_only=True):
    """One side of a run that differs. `output_bytes` is the length of the JSON of a large output, otherwise null; the
    output itself is at `/executions/{id}/nodes/{node}/output`."""

    status: str
    attempts: int
    error: ErrorView | None = absent(None)
    items: int | None = absent(None)
    output_bytes: int | None = absent(None)


class ComparedRunPair(View, frozen=True, kw_only=True):
    """A run that differs in some fields; null on the side without a result."""

    node_id: str
    lineage: str
    fields: list[str]
    before: ComparedRun | None = absent(None)
    after: ComparedRun | None = absent(None)


class ComparedRunPage(View, frozen=True, kw_only=True):
    """Runs that differ, in the order of the first execution."""

    runs: list[ComparedRunPair]
    next: str | None = absent(None)


class DifferenceGroupView(View, frozen=True, kw_only=True):
    """Runs of a node that differ in the same way; statuses are null on the side without a result. `lineages` names the
    first ten."""

    node_id: str
    fields: list[str]
    status: tuple[str | None, str | None]
    code: tuple[str, str]
    count: int
    lineages: list[str]


class ComparisonSummary(View, frozen=True, kw_only=True):
    """The differences between two executions by kind. `first` is the first node that differs, null if none does."""

    before: str
    after: str
    status: tuple[str, str]
    same_input: bool
    same_definition: bool
    definition: list[Change]
    compared: int
    differing: int
    first: str | None
    groups: list[DifferenceGroupView]
