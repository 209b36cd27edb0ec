"""What is drawn: nodes in layers and edges between them."""

from __future__ import annotations

import msgspec

from rune.core.definition import Definition
from rune.core.graph import Graph
from rune.core.scopes import Scopes
from rune.core.validate import Verdict


class Box(msgspec.Struct, frozen=True):
    """A node as it is drawn."""

    id: str
    type: str
    title: str
    layer: int
    splits: tuple[int, ...]  # the splits around it, outermost first


class Link(msgspec.Struct, frozen=True):
    """An edge as it is drawn."""

    src: int
    dst: int
    caption: str
    is_error: bool


class Picture(msgspec.Struct, frozen=True):
    """A workflow as it is drawn. Links go from a layer to a later one."""

    title: str
    boxes: tuple[Box, ...]
    links: tuple[Link, ...]
    order: tuple[int, ...]
    bodies: dict[int, tuple[int, ...]]  # split -> the nodes inside, nested ones included

    @property
    def layers(self) -> list[list[int]]:
        """Boxes by layer, in document order."""
        rows: list[list[int]] = [[] for _ in range(max((box.layer for box in self.boxes), default=-1) + 1)]
        for at, box in enumerate(self.boxes):
            rows[box.layer].append(at)
        return rows

    def leaving(self) -> list[list[Link]]:
        """The links out of each box, in edge order."""
        found: list[list[Link]] = [[] for _ in self.boxes]
        for link in self.links:
            found[link.src].append(link)
        return found


def picture_of(verdict: Verdict) -> Picture:
    """The picture of a document that is valid."""
    definition, graph, scopes = verdict.definition, verdict.graph, verdict.scopes
    if definition is None or graph is None or scopes is None:
        raise ValueError("only a document that could be read can be drawn")
    boxes = _boxes(definition, graph, scopes)
    bodies: dict[int, list[int]] = {}
    for at, box in enumerate(boxes):
        for split in box.splits:
            bodies.setdefault(split, []).append(at)
    links = tuple(
        Link(graph.src[at], graph.dst[at], verdict.outlets[at] or edge.label or "", edge.is_error)
        for at, edge in enumerate(definition.edges)
    )
    return Picture(
        definition.name or definition.id,
        boxes,
        links,
        graph.order,
        {split: tuple(nodes) for split, nodes in bodies.items()},
    )


def _boxes(definition: Definition, graph: Graph, scopes: Scopes) -> tuple[Box, ...]:
    layer = [0] * len(graph.ids)
    for node in graph.order:
        layer[node] = max((layer[source] + 1 for source in graph.predecessors(node)), default=0)
    return tuple(
        Box(node.id, node.type, node.name, layer[at], scopes.enclosing(at))
        for at, node in enumerate(definition.nodes)
    )
