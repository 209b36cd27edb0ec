"""A drawing of a workflow, independent of the output format: boxes, links, the bodies of splits, and the layered
layout of one level: layers, the order inside each layer, and positions across it.

Cells are boxes, bodies of splits, or bends of long links. Segments connect cells of neighbouring layers.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heappush

import msgspec

from rune.core.definition.model import Definition
from rune.core.definition.parser import SourceLocations
from rune.core.node_type import Catalogue, NodeType
from rune.core.plan.graph import Graph, Scopes, build_graph, find_scopes
from rune.core.validation.validate import ValidationResult

SWEEPS = 8
PLACING_SWEEPS = 6
MAX_COUNTED = 20_000
"""Above this number of segments, crossings are not counted."""


def assign_layers(count: int, links: Sequence[tuple[int, int]]) -> list[int]:
    """Return the layer of each node: behind all nodes that lead to it. Links that close a cycle are ignored."""
    out: list[list[int]] = [[] for _ in range(count)]
    missing = [0] * count
    for src, dst in links:
        out[src].append(dst)
        missing[dst] += 1
    layer = [0] * count
    ready = [node for node in range(count) if not missing[node]]
    heapify(ready)
    done = [False] * count
    following = 0  # the first node that may be on a cycle
    for _ in range(count):
        if not ready:
            while done[following]:
                following += 1
            ready.append(following)
        node = heappop(ready)
        done[node] = True
        for target in out[node]:
            if not done[target]:
                layer[target] = max(layer[target], layer[node] + 1)
                missing[target] -= 1
                if not missing[target]:
                    heappush(ready, target)
        missing[node] = -1
    _pull_entries(layer, links)
    return layer


def _pull_entries(layer: list[int], links: Sequence[tuple[int, int]]) -> None:
    """Move each node without predecessors to the layer before its first successor, so that its links are short."""
    entered = {dst for _, dst in links}
    nearest: dict[int, int] = {}
    for src, dst in links:
        if src not in entered:
            nearest[src] = min(nearest.get(src, layer[dst]), layer[dst])
    for node, first in nearest.items():
        layer[node] = max(0, first - 1)


class Cell:
    """A box, a body or a bend. `at` is the centre of its extent across the layer."""

    __slots__ = ("above", "at", "below", "layer", "rank", "size")

    def __init__(self, layer: int, size: float) -> None:
        self.layer = layer
        self.size = size
        self.at = 0.0
        self.rank = 0
        self.above: list[Segment] = []
        self.below: list[Segment] = []


class Segment:
    """A link, or a part of one, between cells of neighbouring layers. It leaves the upper cell at the offset `out` from
    its centre and enters the lower one at `into`."""

    __slots__ = ("into", "lower", "out", "upper", "weight")

    def __init__(
        self, upper: Cell, lower: Cell, out: float = 0.0, into: float = 0.0, weight: float = 1.0
    ) -> None:
        self.upper = upper
        self.lower = lower
        self.out = out
        self.into = into
        self.weight = weight
        upper.below.append(self)
        lower.above.append(self)


def order(rows: list[list[Cell]], segments: Sequence[Segment]) -> None:
    """Sort each row so that few segments cross: by the mean position of the neighbours, in alternating sweeps. Cells
    with equal means keep their order, so that the result depends on the document alone."""
    for row in rows:
        _number(row)
    counted = len(segments) <= MAX_COUNTED
    best = [list(row) for row in rows]
    fewest = _crossings(rows) if counted else 1
    for sweep in range(SWEEPS):
        if not fewest:
            break
        downward = sweep % 2 == 0
        for row in rows if downward else rows[::-1]:
            means = {cell: _mean_rank(cell, downward=downward) for cell in row}
            row.sort(key=means.__getitem__)
            _number(row)
        found = _crossings(rows) if counted else 1
        if found < fewest or not counted:
            fewest, best = found, [list(row) for row in rows]
    for row, kept in zip(rows, best, strict=True):
        row[:] = kept
        _number(row)


def _number(row: list[Cell]) -> None:
    for rank, cell in enumerate(row):
        cell.rank = rank


def _mean_rank(cell: Cell, *, downward: bool) -> float:
    """Return the mean rank of the neighbours, refined by where the segments leave them."""
    found = cell.above if downward else cell.below
    if not found:
        return float(cell.rank)
    if downward:
        return sum(each.upper.rank + each.out / each.upper.size for each in found) / len(found)
    return sum(each.lower.rank + each.into / each.lower.size for each in found) / len(found)


def _crossings(rows: list[list[Cell]]) -> int:
    """Count the pairs of segments that cross."""
    found = 0
    for row in rows:
        ends: list[float] = []
        for cell in row:
            leaving = sorted((each.out, each.lower.rank + each.into / each.lower.size) for each in cell.below)
            for _, end in leaving:
                found += len(ends) - bisect_right(ends, end)
                insort(ends, end)
    return found


def place(rows: list[list[Cell]], gap: float) -> float:
    """Set positions across the layers, such that segments are straight where possible; return the total extent."""
    for row in rows:
        left = 0.0
        for cell in row:
            cell.at = left + cell.size / 2
            left += cell.size + gap
    for sweep in range(PLACING_SWEEPS):
        last = sweep == PLACING_SWEEPS - 1
        upward = sweep % 2 == 1 and not last
        for row in rows[::-1] if upward else rows:
            _place_row(row, gap, above=not upward, below=upward or last)
    first = min((cell.at - cell.size / 2 for row in rows for cell in row), default=0.0)
    for row in rows:
        for cell in row:
            cell.at -= first
    return max((cell.at + cell.size / 2 for row in rows for cell in row), default=0.0)


def _place_row(row: list[Cell], gap: float, *, above: bool, below: bool) -> None:
    """Place a row as near to the wanted positions as its order and the sizes allow (isotonic regression)."""
    blocks: list[tuple[float, float, int]] = []  # mean, weight, number of cells
    offset = 0.0
    offsets: list[float] = []
    for rank, cell in enumerate(row):
        if rank:
            offset += (row[rank - 1].size + cell.size) / 2 + gap
        offsets.append(offset)
        wanted, weight = _wanted(cell, above=above, below=below)
        mean, count = wanted - offset, 1
        while blocks and blocks[-1][0] >= mean:
            before, before_weight, before_count = blocks.pop()
            mean = (mean * weight + before * before_weight) / (weight + before_weight)
            weight += before_weight
            count += before_count
        blocks.append((mean, weight, count))
    rank = 0
    for mean, _, count in blocks:
        for _ in range(count):
            row[rank].at = mean + offsets[rank]
            rank += 1


def _wanted(cell: Cell, *, above: bool, below: bool) -> tuple[float, float]:
    """Return the position at which the segments of a cell are straightest, and how much it matters."""
    total = weights = 0.0
    if above:
        for each in cell.above:
            total += (each.upper.at + each.out - each.into) * each.weight
            weights += each.weight
    if below:
        for each in cell.below:
            total += (each.lower.at + each.into - each.out) * each.weight
            weights += each.weight
    return (total / weights, weights) if weights else (cell.at, 0.01)


ERROR_PORT = "error"
"""The port of error edges."""


class Box(msgspec.Struct, frozen=True):
    """A node of the drawing. `ports` are its outlets in order, then the one of its error edges; none: one way out."""

    id: str
    type: str
    title: str
    layer: int
    splits: tuple[int, ...]  # the splits around it, outermost first
    ports: tuple[str, ...] = ()


class Link(msgspec.Struct, frozen=True):
    """An edge of the drawing."""

    id: str
    src: int
    dst: int
    caption: str
    is_error: bool
    port: str | None = None


class Drawing(msgspec.Struct, frozen=True):
    """A workflow. In a valid one, links lead from a layer to a later one."""

    title: str
    boxes: tuple[Box, ...]
    links: tuple[Link, ...]
    bodies: dict[int, tuple[int, ...]]  # split -> the nodes inside, nested ones included

    @property
    def layers(self) -> list[list[int]]:
        """The boxes of each layer, in document order."""
        rows: list[list[int]] = [[] for _ in range(max((box.layer for box in self.boxes), default=-1) + 1)]
        for at, box in enumerate(self.boxes):
            rows[box.layer].append(at)
        return rows

    def leaving(self) -> list[list[Link]]:
        """Return the outgoing links of each box, in edge order."""
        found: list[list[Link]] = [[] for _ in self.boxes]
        for link in self.links:
            found[link.src].append(link)
        return found


def draw_definition(verdict: ValidationResult) -> Drawing:
    """Return the drawing of a checked document, also of an invalid one. Edges with an unknown end are left out."""
    definition, graph, scopes = verdict.definition, verdict.graph, verdict.scopes
    if definition is None or graph is None or scopes is None:
        raise ValueError("the document could not be read, so there is nothing to draw")
    return _draw(definition, graph, scopes, verdict.types, verdict.outlets)


def draw_stored(definition: Definition, catalogue: Catalogue) -> Drawing:
    """Return the drawing of a stored definition, whose node types this process may lack."""
    graph = build_graph([node.id for node in definition.nodes], definition.edges)
    types = tuple(catalogue.get(node.type) for node in definition.nodes)
    places = SourceLocations.of(definition.nodes, definition.edges)
    scopes, _ = find_scopes(graph, types, definition.edges, places)
    routes = [_routes(kind, definition, at) for at, kind in enumerate(types)]
    outlets = [
        None if edge.is_error or graph.src[at] < 0 else routes[graph.src[at]].get(edge.id, edge.label)
        for at, edge in enumerate(definition.edges)
    ]
    return _draw(definition, graph, scopes, types, outlets)


def _draw(
    definition: Definition,
    graph: Graph,
    scopes: Scopes,
    types: Sequence[NodeType | None],
    outlets: Sequence[str | None],
) -> Drawing:
    drawn = [
        at
        for at in range(len(definition.edges))
        if graph.src[at] >= 0 and graph.dst[at] >= 0 and graph.src[at] != graph.dst[at]
    ]
    links = tuple(
        Link(
            id=definition.edges[at].id,
            src=graph.src[at],
            dst=graph.dst[at],
            caption=outlets[at] or definition.edges[at].label or "",
            is_error=definition.edges[at].is_error,
            port=ERROR_PORT if definition.edges[at].is_error else outlets[at],
        )
        for at in drawn
    )
    layers = assign_layers(len(graph.ids), [(each.src, each.dst) for each in links])
    failing = {each.src for each in links if each.is_error}
    boxes = tuple(
        Box(
            id=node.id,
            type=node.type,
            title=node.name,
            layer=layers[at],
            splits=scopes.enclosing(at),
            ports=(*_outlets(types[at], definition, at), *((ERROR_PORT,) if at in failing else ())),
        )
        for at, node in enumerate(definition.nodes)
    )
    bodies: dict[int, list[int]] = {}
    for at, box in enumerate(boxes):
        for split in box.splits:
            bodies.setdefault(split, []).append(at)
    title = definition.name or definition.id
    return Drawing(title, boxes, links, {split: tuple(nodes) for split, nodes in bodies.items()})


def _outlets(kind: NodeType | None, definition: Definition, at: int) -> tuple[str, ...]:
    """Return the outlets of a node; none if its type or its parameters are invalid."""
    try:
        return () if kind is None else kind.outlets(definition.nodes[at].parameters)
    except (KeyError, TypeError, ValueError):
        return ()


def _routes(kind: NodeType | None, definition: Definition, at: int) -> Mapping[str, str]:
    try:
        return {} if kind is None else kind.routes(definition.nodes[at].parameters)
    except (KeyError, TypeError, ValueError):
        return {}
