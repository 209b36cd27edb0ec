"""Layouts of definitions, values of expressions, imported documents."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from rune.api.base import Known, View, absent
from rune.core.definition.problems import Problem


class NodePlace(View, frozen=True, kw_only=True):
    """The place of a node by its top left corner. `outlets` maps each outlet, and `error`, to the point at which its
    edges leave the node; a node without outlets has none."""

    x: float
    y: float
    width: float
    height: float
    outlets: dict[str, list[float]] = absent({})


class EdgePlace(View, frozen=True, kw_only=True):
    """The points that an edge passes, as pairs of x and y; between two points of a layer it runs straight."""

    points: list[list[float]]
    outlet: str | None = absent(None)
    is_error: bool = absent(False)


class FramePlace(View, frozen=True, kw_only=True):
    """The frame around the body of a split. It contains nothing else."""

    x: float
    y: float
    width: float
    height: float


class LayoutView(View, frozen=True, kw_only=True):
    """The layout of a definition: nodes and edges by id, frames by the id of their split."""

    direction: Annotated[str, Known(Literal["down", "right"])]
    width: float
    height: float
    nodes: dict[str, NodePlace]
    edges: dict[str, EdgePlace]
    frames: dict[str, FramePlace]


class PreviewView(View, frozen=True, kw_only=True):
    """The value of an expression. `text` is its JSON, cut at 10 KB if `truncated`; both are null if there are
    problems."""

    text: str | None = absent(None)
    type: str | None = absent(None)
    truncated: bool = absent(False)
    bytes: int = absent(0)
    problems: list[Problem] = absent([])


class ImportEntry(View, frozen=True, kw_only=True):
    """What became of one element of the source. `source` and `target` are paths in the two documents; `node` is the
    name of the node that it belongs to, empty if there is none."""

    source: str
    status: Annotated[str, Known(Literal["carried", "changed", "approximated", "by_hand"])]
    target: str = absent("")
    message: str = absent("")
    hint: str = absent("")
    node: str = absent("")


class Imported(View, frozen=True, kw_only=True):
    """The new document and the report. `complete`: everything was carried and the document is valid. `stubs` is the
    Python source of custom nodes to complete, `test` a test for `rune test` whose mocks are the pinned data of the
    source, without its workflow."""

    document: dict[str, Any]
    format: Annotated[str, Known(Literal["canvas", "n8n", "asl"])]
    complete: bool
    counts: dict[str, int] = absent({})
    entries: list[ImportEntry] = absent([])
    problems: list[Problem] = absent([])
    stubs: str = absent("")
    test: dict[str, Any] = absent({})
