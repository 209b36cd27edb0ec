"""Dominators: the node that every path to another leads through."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from rune.core.definition import Edge
from rune.core.graph import Graph

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
