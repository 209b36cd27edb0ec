"""Which split each node is inside of, and which aggregator closes which split. Decided from the graph
alone."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from rune.core import codes
from rune.core.definition import Edge
from rune.core.graph import Graph
from rune.core.limits import LIMITS, Limits
from rune.core.nodetype import NodeType
from rune.core.places import Places
from rune.core.problem import Problem


class Scopes(msgspec.Struct, frozen=True):
    """Static scopes by node index. A split and an aggregator both belong to the scope around the items."""

    depth: tuple[int, ...]
    split: tuple[int | None, ...]  # the innermost split whose items the node runs for; None: the root scope
    aggregator: dict[int, int]  # split -> aggregator
    split_of: dict[int, int]  # aggregator -> split

    def enclosing(self, node: int) -> tuple[int, ...]:
        """The splits around a node, outermost first."""
        found: list[int] = []
        split = self.split[node]
        while split is not None:
            found.append(split)
            split = self.split[split]
        return tuple(reversed(found))


def find_scopes(
    graph: Graph,
    types: Sequence[NodeType | None],
    edges: Sequence[Edge],
    places: Places,
    limits: Limits = LIMITS,
) -> tuple[Scopes, list[Problem]]:
    """Scopes of all nodes and what is wrong with them, in one pass along the topological order. Nodes on or
    behind a cycle are left in the root scope: the cycle is the problem to report."""
    return _Finder(graph, types, edges, places, limits).run()


class _Finder:
    def __init__(
        self,
        graph: Graph,
        types: Sequence[NodeType | None],
        edges: Sequence[Edge],
        places: Places,
        limits: Limits,
    ) -> None:
        self._graph = graph
        self._types = types
        self._edges = edges
        self._places = places
        self._limits = limits
        self._depth = [0] * len(graph.ids)
        self._split: list[int | None] = [None] * len(graph.ids)
        self._aggregator: dict[int, int] = {}
        self._split_of: dict[int, int] = {}
        self._problems: list[Problem] = []

    def run(self) -> tuple[Scopes, list[Problem]]:
        for node in self._graph.order:
            self._place(node)
        scopes = Scopes(tuple(self._depth), tuple(self._split), self._aggregator, self._split_of)
        return scopes, self._problems

    def _place(self, node: int) -> None:
        kind = self._types[node]
        scope = self._entering(node)
        if kind is not None and kind.joins_items:
            scope = self._pair(node, scope)
        self._split[node] = scope
        self._depth[node] = 0 if scope is None else self._depth[scope] + 1
        if kind is None:
            return
        if kind.fans_out and self._depth[node] >= self._limits.split_depth:
            self._report(
                codes.SPLIT_TOO_DEEP,
                self._places.nodes[node],
                f"split `{self._graph.ids[node]}` is nested deeper than {self._limits.split_depth} splits",
                "move the inner part into a workflow of its own and call it with a `workflow` node",
            )
        if kind.sets_output and scope is not None:
            self._report(
                codes.OUTPUT_IN_SPLIT,
                self._places.nodes[node],
                f"`{self._graph.ids[node]}` sets the output of the execution but runs once per item of "
                f"split `{self._graph.ids[scope]}`",
                "put it behind the aggregator",
            )

    def _entering(self, node: int) -> int | None:
        """The scope that the in-edges bring; where they differ, that of the first, and a problem for each
        other."""
        edges = self._graph.in_edges[node]
        if not edges:
            return None
        first = self._carried(edges[0])
        for edge in edges[1:]:
            other = self._carried(edge)
            if other != first:
                self._report(
                    codes.SCOPES_MEET,
                    self._places.edges[edge],
                    f"paths of different split scopes meet in `{self._graph.ids[node]}`: edge "
                    f"`{self._edges[edge].id}` comes from {self._describe(other)}, edge "
                    f"`{self._edges[edges[0]].id}` from {self._describe(first)}",
                    "gather the items of a split with an aggregator before its path meets another",
                )
        return first

    def _carried(self, edge: int) -> int | None:
        """The scope of a token on this edge. A split that fails has no items, so its error edge stays
        outside."""
        source = self._graph.src[edge]
        kind = self._types[source]
        if kind is not None and kind.fans_out and not self._edges[edge].is_error:
            return source
        return self._split[source]

    def _pair(self, node: int, scope: int | None) -> int | None:
        """Give an aggregator its split; answers the scope behind it."""
        name = self._graph.ids[node]
        if scope is None:
            edges = self._graph.in_edges[node]
            led = f" (edge `{self._edges[edges[0]].id}` leads here from outside every split)" if edges else ""
            self._report(
                codes.AGGREGATOR_OUTSIDE_SPLIT,
                self._places.nodes[node],
                f"aggregator `{name}` is not inside a split{led}",
                "put it on the paths out of a split, or use `merge` to join branches",
            )
            return None
        taken = self._aggregator.get(scope)
        if taken is None:
            self._aggregator[scope] = node
            self._split_of[node] = scope
        else:
            self._report(
                codes.TWO_AGGREGATORS,
                self._places.nodes[node],
                f"split `{self._graph.ids[scope]}` has two aggregators, `{self._graph.ids[taken]}` and "
                f"`{name}` "
                f"(reached by edge `{self._edges[self._graph.in_edges[node][0]].id}`)",
                "lead all paths of the items to one aggregator",
            )
        return self._split[scope]

    def _describe(self, scope: int | None) -> str:
        return "outside every split" if scope is None else f"inside split `{self._graph.ids[scope]}`"

    def _report(self, code: str, path: str, message: str, hint: str) -> None:
        self._problems.append(Problem(path, code, message, hint))
