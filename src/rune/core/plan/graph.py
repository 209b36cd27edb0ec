"""The shape of a definition: nodes and edges by index, in an order that respects the edges.

Dominators: the node that every path to another leads through.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush

import msgspec

from rune.core.definition.model import Edge


class Graph(msgspec.Struct, frozen=True):
    """Adjacency by index. An edge with an unknown end (-1) or from a node to itself keeps its index but is in
    no adjacency list, so one bad edge does not hide what else is wrong."""

    ids: tuple[str, ...]
    index: dict[str, int]
    src: tuple[int, ...]
    dst: tuple[int, ...]
    out_edges: tuple[tuple[int, ...], ...]
    in_edges: tuple[tuple[int, ...], ...]
    order: tuple[int, ...]  # lacks the nodes on a cycle and those only a cycle leads to

    @property
    def entries(self) -> tuple[int, ...]:
        """Nodes without in-edges."""
        return tuple(node for node, edges in enumerate(self.in_edges) if not edges)

    @property
    def exits(self) -> tuple[int, ...]:
        """Nodes without out-edges."""
        return tuple(node for node, edges in enumerate(self.out_edges) if not edges)

    def predecessors(self, node: int) -> list[int]:
        """Sources of the node's in-edges, in edge order; a source with two edges appears twice."""
        return [self.src[edge] for edge in self.in_edges[node]]

    def successors(self, node: int) -> list[int]:
        """Targets of the node's out-edges, in edge order; a target with two edges appears twice."""
        return [self.dst[edge] for edge in self.out_edges[node]]


def build_graph(ids: Sequence[str], edges: Sequence[Edge]) -> Graph:
    """The graph of these node ids and edges. Of two nodes with one id the first is the one that edges
    mean."""
    index: dict[str, int] = {}
    for position, node in enumerate(ids):
        index.setdefault(node, position)
    src = tuple(index.get(edge.src, -1) for edge in edges)
    dst = tuple(index.get(edge.dst, -1) for edge in edges)
    out_edges: list[list[int]] = [[] for _ in ids]
    in_edges: list[list[int]] = [[] for _ in ids]
    for edge, (source, target) in enumerate(zip(src, dst, strict=True)):
        if source >= 0 and target >= 0 and source != target:
            out_edges[source].append(edge)
            in_edges[target].append(edge)
    return Graph(
        ids=tuple(ids),
        index=index,
        src=src,
        dst=dst,
        out_edges=tuple(map(tuple, out_edges)),
        in_edges=tuple(map(tuple, in_edges)),
        order=_kahn(out_edges, in_edges, dst),
    )


def _kahn(out_edges: list[list[int]], in_edges: list[list[int]], dst: tuple[int, ...]) -> tuple[int, ...]:
    """Topological order; among nodes that are ready the one written first comes first."""
    missing = [len(edges) for edges in in_edges]
    ready = [node for node, count in enumerate(missing) if not count]
    heapify(ready)
    order: list[int] = []
    while ready:
        node = heappop(ready)
        order.append(node)
        for edge in out_edges[node]:
            target = dst[edge]
            missing[target] -= 1
            if not missing[target]:
                heappush(ready, target)
    return tuple(order)


def find_cycle(graph: Graph) -> tuple[str, ...]:
    """One concrete cycle as node ids, each once, from the one written first; empty if there is none."""
    if len(graph.order) == len(graph.ids):
        return ()
    sorted_out = set(graph.order)
    # A node that Kahn could not place has a predecessor it could not place either: walking back must repeat.
    node = next(each for each in range(len(graph.ids)) if each not in sorted_out)
    walk: dict[int, int] = {}
    while node not in walk:
        walk[node] = len(walk)
        node = next(each for each in graph.predecessors(node) if each not in sorted_out)
    backwards = [each for each, position in walk.items() if position >= walk[node]]
    cycle = backwards[::-1]
    first = cycle.index(min(cycle))
    return tuple(graph.ids[each] for each in cycle[first:] + cycle[:first])


def reachable(graph: Graph, starts: Iterable[int]) -> set[int]:
    """Every node that a path from one of `starts` leads to, the starts included."""
    found = set(starts)
    open_nodes = list(found)
    while open_nodes:
        for target in graph.successors(open_nodes.pop()):
            if target not in found:
                found.add(target)
                open_nodes.append(target)
    return found


def ancestors(graph: Graph) -> tuple[int, ...]:
    """For each node the set of nodes with a path to it, as bits of an integer (bit i: node i). Zero for nodes
    on or behind a cycle."""
    sets = [0] * len(graph.ids)
    src, in_edges = graph.src, graph.in_edges
    for node in graph.order:
        found = 0
        for edge in in_edges[node]:
            source = src[edge]
            found |= sets[source] | (1 << source)
        sets[node] = found
    return tuple(sets)


ROOT = -1
"""Stands above all entries."""

ERROR = "\0error"
"""The exit of an error edge, apart from every outlet: it and a success are never both taken."""


class Dominators(msgspec.Struct, frozen=True):
    """The nearest dominator of each node of an acyclic graph, and the ways out of a node that lead to
    another."""

    graph: Graph
    edges: Sequence[Edge]
    outlets: Sequence[str | None]
    ancestors: Sequence[int]
    parent: Sequence[int]
    depth: Sequence[int]

    def above(self, node: int) -> Iterable[tuple[int, int]]:
        """Each dominator of a node, nearest first and ROOT last, with the one below it on the way."""
        below = node
        while below != ROOT:
            yield self.parent[below], below
            below = self.parent[below]

    def common(self, nodes: Iterable[int]) -> int:
        """The nearest node that dominates all of these, which may be one of them."""
        first, *others = nodes
        for other in others:
            first = _meet(first, other, self.parent, self.depth)
        return first

    def exits(self, router: int, target: int) -> set[str | None]:
        """The exits of `router` from which `target` can be reached."""
        graph, known = self.graph, self.ancestors[target] | (1 << target)
        return {self.exit(edge) for edge in graph.out_edges[router] if known >> graph.dst[edge] & 1}

    def exit(self, edge: int) -> str | None:
        """What must happen at its source for this edge to be taken: of different exits at most one is."""
        return ERROR if self.edges[edge].is_error else self.outlets[edge]


def find_dominators(
    graph: Graph, edges: Sequence[Edge], outlets: Sequence[str | None], ancestors: Sequence[int]
) -> Dominators:
    """In one pass along the topological order; nodes on or behind a cycle are left under ROOT."""
    parent = [ROOT] * len(graph.ids)
    depth = [1] * len(graph.ids)
    for node in graph.order:
        sources = graph.predecessors(node)
        if sources:
            found = sources[0]
            for source in sources[1:]:
                found = _meet(found, source, parent, depth)
            parent[node] = found
            depth[node] = 1 if found == ROOT else depth[found] + 1
    return Dominators(graph, edges, outlets, ancestors, parent, depth)


def _meet(one: int, other: int, parent: Sequence[int], depth: Sequence[int]) -> int:
    while one != other:
        if ROOT in {one, other}:
            return ROOT
        if depth[one] < depth[other]:
            other = parent[other]
        else:
            one = parent[one]
    return one
