"""The graph of a definition: adjacency and topological order by index, cycles, reachability and dominators."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush

import msgspec

from rune.core.definition.model import Edge


class Graph(msgspec.Struct, frozen=True):
    """Adjacency by index.

    An edge with an unknown end (-1) or from a node to itself keeps its index but is in no adjacency list, so that one
    invalid edge does not hide other problems.
    """

    ids: tuple[str, ...]
    index: dict[str, int]
    src: tuple[int, ...]
    dst: tuple[int, ...]
    out_edges: tuple[tuple[int, ...], ...]
    in_edges: tuple[tuple[int, ...], ...]
    order: tuple[int, ...]  # topological; without nodes on or after a cycle

    @property
    def entries(self) -> tuple[int, ...]:
        """Nodes without in-edges."""
        return tuple(node for node, edges in enumerate(self.in_edges) if not edges)

    @property
    def exits(self) -> tuple[int, ...]:
        """Nodes without out-edges."""
        return tuple(node for node, edges in enumerate(self.out_edges) if not edges)

    def predecessors(self, node: int) -> list[int]:
        """Return the sources of the in-edges, in edge order; a source with two edges appears twice."""
        return [self.src[edge] for edge in self.in_edges[node]]

    def successors(self, node: int) -> list[int]:
        """Return the targets of the out-edges, in edge order; a target with two edges appears twice."""
        return [self.dst[edge] for edge in self.out_edges[node]]


def build_graph(ids: Sequence[str], edges: Sequence[Edge]) -> Graph:
    """Build the graph. If two nodes have the same id, edges refer to the first one."""
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
        order=_topological_order(out_edges, in_edges, dst),
    )


def _topological_order(
    out_edges: list[list[int]], in_edges: list[list[int]], dst: tuple[int, ...]
) -> tuple[int, ...]:
    """Return the topological order; ready nodes keep the order of the document."""
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
    """Return the node ids of one cycle, beginning with the first in the document; empty if there is none."""
    if len(graph.order) == len(graph.ids):
        return ()
    ordered = set(graph.order)
    # A node without a place in the order has such a predecessor too, so that walking back must repeat a node.
    node = next(each for each in range(len(graph.ids)) if each not in ordered)
    walk: dict[int, int] = {}
    while node not in walk:
        walk[node] = len(walk)
        node = next(each for each in graph.predecessors(node) if each not in ordered)
    backwards = [each for each, position in walk.items() if position >= walk[node]]
    cycle = backwards[::-1]
    first = cycle.index(min(cycle))
    return tuple(graph.ids[each] for each in cycle[first:] + cycle[:first])


def reachable(graph: Graph, starts: Iterable[int]) -> set[int]:
    """Return every node that can be reached from `starts`, including these."""
    found = set(starts)
    open_nodes = list(found)
    while open_nodes:
        for target in graph.successors(open_nodes.pop()):
            if target not in found:
                found.add(target)
                open_nodes.append(target)
    return found


def ancestors(graph: Graph) -> tuple[int, ...]:
    """Return the ancestors of each node as bits of an integer (bit i: node i). Zero for nodes on or after a cycle."""
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
"""The virtual dominator of all entries."""

ERROR = "\0error"
"""The exit of an error edge, distinct from every outlet: at most one of error and success is taken."""


class Dominators(msgspec.Struct, frozen=True):
    """The immediate dominator of each node of an acyclic graph, and the exits of a node that lead to another."""

    graph: Graph
    edges: Sequence[Edge]
    outlets: Sequence[str | None]
    ancestors: Sequence[int]
    parent: Sequence[int]
    depth: Sequence[int]

    def above(self, node: int) -> Iterable[tuple[int, int]]:
        """Yield each dominator of a node, nearest first and ROOT last, with its child towards the node."""
        below = node
        while below != ROOT:
            yield self.parent[below], below
            below = self.parent[below]

    def common(self, nodes: Iterable[int]) -> int:
        """Return the nearest node that dominates all of these, which may be one of them."""
        first, *others = nodes
        for other in others:
            first = _common_dominator(first, other, self.parent, self.depth)
        return first

    def exits(self, router: int, target: int) -> set[str | None]:
        """Return the exits of `router` from which `target` can be reached."""
        graph, known = self.graph, self.ancestors[target] | (1 << target)
        return {self.exit(edge) for edge in graph.out_edges[router] if known >> graph.dst[edge] & 1}

    def exit(self, edge: int) -> str | None:
        """Return the exit of its source that takes this edge. At most one exit of a node is taken."""
        return ERROR if self.edges[edge].is_error else self.outlets[edge]


def find_dominators(
    graph: Graph, edges: Sequence[Edge], outlets: Sequence[str | None], ancestors: Sequence[int]
) -> Dominators:
    """Compute dominators in topological order. Nodes on or after a cycle stay under ROOT."""
    parent = [ROOT] * len(graph.ids)
    depth = [1] * len(graph.ids)
    for node in graph.order:
        sources = graph.predecessors(node)
        if sources:
            found = sources[0]
            for source in sources[1:]:
                found = _common_dominator(found, source, parent, depth)
            parent[node] = found
            depth[node] = 1 if found == ROOT else depth[found] + 1
    return Dominators(graph, edges, outlets, ancestors, parent, depth)


def _common_dominator(one: int, other: int, parent: Sequence[int], depth: Sequence[int]) -> int:
    while one != other:
        if ROOT in {one, other}:
            return ROOT
        if depth[one] < depth[other]:
            other = parent[other]
        else:
            one = parent[one]
    return one
