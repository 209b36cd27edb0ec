"""The shape of a definition: nodes and edges by index, in an order that respects the edges."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush

import msgspec

from rune.core.definition import Edge


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
