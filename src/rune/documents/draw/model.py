"""A drawing of a workflow, independent of the output format: boxes, links, and the bodies of splits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from rune.core.definition.model import Definition
from rune.core.definition.parser import SourceLocations
from rune.core.node_type import Catalogue, NodeType
from rune.core.plan.analysis import Scopes, find_scopes
from rune.core.plan.graph import Graph, build_graph
from rune.core.validation.validate import ValidationResult
from rune.documents.draw.layers import assign_layers

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
