"""The graph of a definition: adjacency and topological order by index, cycles, reachability and dominators, and its
static analysis: the split scope of each node, and the traits that follow from its position.

Scopes pair each split with its aggregator. Each trait is computed in one pass in topological order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush

import msgspec

from rune.core.definition import problems
from rune.core.definition.model import Definition, Edge
from rune.core.definition.parser import SourceLocations
from rune.core.definition.problems import Problem
from rune.core.limits import LIMITS, Limits
from rune.core.node_type import JoinRule, NodeType


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
    node = next(index for index in range(len(graph.ids)) if index not in ordered)
    walk: dict[int, int] = {}
    while node not in walk:
        walk[node] = len(walk)
        node = next(source for source in graph.predecessors(node) if source not in ordered)
    backwards = [index for index, position in walk.items() if position >= walk[node]]
    cycle = backwards[::-1]
    first = cycle.index(min(cycle))
    return tuple(graph.ids[index] for index in cycle[first:] + cycle[:first])


def reachable(graph: Graph, starts: Iterable[int]) -> set[int]:
    """Return every node that can be reached from `starts`, including these."""
    reached = set(starts)
    open_nodes = list(reached)
    while open_nodes:
        for target in graph.successors(open_nodes.pop()):
            if target not in reached:
                reached.add(target)
                open_nodes.append(target)
    return reached


def ancestors(graph: Graph) -> tuple[int, ...]:
    """Return the ancestors of each node as bits of an integer (bit i: node i). Zero for nodes on or after a cycle."""
    sets = [0] * len(graph.ids)
    src, in_edges = graph.src, graph.in_edges
    for node in graph.order:
        bits = 0
        for edge in in_edges[node]:
            source = src[edge]
            bits |= sets[source] | (1 << source)
        sets[node] = bits
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
        for node in others:
            first = _common_dominator(first, node, self.parent, self.depth)
        return first

    def exits(self, router: int, target: int) -> set[str | None]:
        """Return the exits of `router` from which `target` can be reached."""
        graph, upstream = self.graph, self.ancestors[target] | (1 << target)
        return {self.exit(edge) for edge in graph.out_edges[router] if upstream >> graph.dst[edge] & 1}

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
            dominator = sources[0]
            for source in sources[1:]:
                dominator = _common_dominator(dominator, source, parent, depth)
            parent[node] = dominator
            depth[node] = 1 if dominator == ROOT else depth[dominator] + 1
    return Dominators(graph, edges, outlets, ancestors, parent, depth)


def _common_dominator(first: int, second: int, parent: Sequence[int], depth: Sequence[int]) -> int:
    while first != second:
        if ROOT in {first, second}:
            return ROOT
        if depth[first] < depth[second]:
            second = parent[second]
        else:
            first = parent[first]
    return first


class Scopes(msgspec.Struct, frozen=True):
    """Static scopes by node index. A split and its aggregator belong to the scope that encloses the items."""

    depth: tuple[int, ...]
    split: tuple[int | None, ...]  # the innermost split whose items the node runs for; None: the root scope
    aggregator: dict[int, int]  # split -> aggregator
    split_of: dict[int, int]  # aggregator -> split

    def enclosing(self, node: int) -> tuple[int, ...]:
        """Return the splits that enclose a node, outermost first."""
        splits: list[int] = []
        split = self.split[node]
        while split is not None:
            splits.append(split)
            split = self.split[split]
        return tuple(reversed(splits))


def find_scopes(
    graph: Graph,
    types: Sequence[NodeType | None],
    edges: Sequence[Edge],
    places: SourceLocations,
    limits: Limits = LIMITS,
) -> tuple[Scopes, list[Problem]]:
    """Return the scopes of all nodes and their problems.

    Nodes on or after a cycle stay in the root scope: the cycle is the problem to report.
    """
    return _ScopeFinder(graph, types, edges, places, limits).run()


class _ScopeFinder:
    def __init__(
        self,
        graph: Graph,
        types: Sequence[NodeType | None],
        edges: Sequence[Edge],
        places: SourceLocations,
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
        scope = self._entry_scope(node)
        if kind is not None and kind.joins_items:
            scope = self._assign_split(node, scope)
        self._split[node] = scope
        self._depth[node] = 0 if scope is None else self._depth[scope] + 1
        if kind is None:
            return
        if kind.fans_out and self._depth[node] >= self._limits.split_depth:
            self._report(
                problems.SPLIT_TOO_DEEP,
                self._places.nodes[node],
                f"split `{self._graph.ids[node]}` is nested deeper than {self._limits.split_depth} splits",
                "move the inner part into a separate workflow and call it with a `workflow` node",
            )
        if kind.sets_output and scope is not None:
            self._report(
                problems.OUTPUT_IN_SPLIT,
                self._places.nodes[node],
                f"`{self._graph.ids[node]}` sets the output of the execution but runs once per item of "
                f"split `{self._graph.ids[scope]}`",
                "put it after the aggregator",
            )

    def _entry_scope(self, node: int) -> int | None:
        """Return the scope of the first in-edge, and report each in-edge with a different scope."""
        edges = self._graph.in_edges[node]
        if not edges:
            return None
        first = self._edge_scope(edges[0])
        for edge in edges[1:]:
            scope = self._edge_scope(edge)
            if scope != first:
                self._report(
                    problems.SCOPES_MEET,
                    self._places.edges[edge],
                    f"paths of different split scopes meet in `{self._graph.ids[node]}`: edge "
                    f"`{self._edges[edge].id}` comes from {self._describe(scope)}, edge "
                    f"`{self._edges[edges[0]].id}` from {self._describe(first)}",
                    "gather the items of a split with an aggregator before its path meets another",
                )
        return first

    def _edge_scope(self, edge: int) -> int | None:
        """Return the scope of a token on this edge. A failed split has no items, so its error edge stays outside."""
        source = self._graph.src[edge]
        kind = self._types[source]
        if kind is not None and kind.fans_out and not self._edges[edge].is_error:
            return source
        return self._split[source]

    def _assign_split(self, node: int, scope: int | None) -> int | None:
        """Assign an aggregator to its split and return the scope after it."""
        name = self._graph.ids[node]
        if scope is None:
            edges = self._graph.in_edges[node]
            reason = (
                f" (edge `{self._edges[edges[0]].id}` leads here from outside every split)" if edges else ""
            )
            self._report(
                problems.AGGREGATOR_OUTSIDE_SPLIT,
                self._places.nodes[node],
                f"aggregator `{name}` is not inside a split{reason}",
                "put it on the paths out of a split, or use `merge` to join branches",
            )
            return None
        existing = self._aggregator.get(scope)
        if existing is None:
            self._aggregator[scope] = node
            self._split_of[node] = scope
        else:
            self._report(
                problems.TWO_AGGREGATORS,
                self._places.nodes[node],
                f"split `{self._graph.ids[scope]}` has two aggregators, `{self._graph.ids[existing]}` and "
                f"`{name}` "
                f"(reached by edge `{self._edges[self._graph.in_edges[node][0]].id}`)",
                "lead all paths of the items to one aggregator",
            )
        return self._split[scope]

    def _describe(self, scope: int | None) -> str:
        return "outside every split" if scope is None else f"inside split `{self._graph.ids[scope]}`"

    def _report(self, code: str, path: str, message: str, hint: str) -> None:
        self._problems.append(Problem(path, code, message, hint))


class NodeTraits(msgspec.Struct, frozen=True):
    """What follows from the position of each node in the graph."""

    rules: tuple[JoinRule, ...]
    is_join: tuple[bool, ...]
    timeouts: tuple[int | None, ...]  # ms
    listed: tuple[bool, ...]
    raced: tuple[bool, ...]
    regions: dict[int, frozenset[int]]
    bodies: dict[int, tuple[int, ...]]
    timed_races: dict[int, tuple[int, ...]]  # by the split whose items hold them, -1 for the root


def find_node_traits(
    definition: Definition, graph: Graph, scopes: Scopes, types: Sequence[NodeType]
) -> NodeTraits:
    nodes = zip(definition.nodes, types, strict=True)
    rules = tuple(_join_rule(node.join, type, node.parameters) for node, type in nodes)
    is_join = tuple(
        (len(graph.in_edges[i]) > 1 or (type.merges and bool(graph.in_edges[i]))) and not type.joins_items
        for i, type in enumerate(types)
    )
    timeouts = _timeouts(definition, graph, scopes, types, rules)
    return NodeTraits(
        rules,
        is_join,
        timeouts,
        _find_listed(graph, scopes),
        _find_raced(
            graph, scopes, [_is_race(definition, rules, timeouts, is_join, i) for i in range(len(types))]
        ),
        {i: _find_region(graph, scopes, i) for i, rule in enumerate(rules) if rule.cancel_losers},
        _bodies(scopes),
        _timed_races(scopes, rules, timeouts),
    )


def _join_rule(join: str | None, type: NodeType, parameters: dict[str, object]) -> JoinRule:
    rule = type.join_rule(parameters)
    return rule if join is None else msgspec.structs.replace(rule, opens=join)


def _timeouts(
    definition: Definition, graph: Graph, scopes: Scopes, types: Sequence[NodeType], rules: Sequence[JoinRule]
) -> tuple[int | None, ...]:
    """Return the join timeouts in ms. A join after a node that may suspend for days has no default timeout."""
    sleeps = _sleeps_upstream(graph, scopes, types)
    timeouts: list[int | None] = []
    for i, (type, rule) in enumerate(zip(types, rules, strict=True)):
        seconds = rule.timeout
        if not (type.merges or type.joins_items):
            seconds = 0
        elif seconds is None:
            seconds = 0 if rule.opens == "any" or sleeps[i] else definition.settings.join_timeout
        timeouts.append(round(seconds * 1000) if seconds else None)
    return tuple(timeouts)


def _sleeps_upstream(graph: Graph, scopes: Scopes, types: Sequence[NodeType]) -> list[bool]:
    """Return for each node whether a node upstream in its scope, or a nested one, may suspend."""
    sleeps = [False] * len(types)
    for i in graph.order:
        sources = [source for source in graph.predecessors(i) if scopes.depth[source] >= scopes.depth[i]]
        if i in scopes.split_of:
            sources.append(scopes.split_of[i])
        sleeps[i] = any(sleeps[source] or types[source].suspends for source in sources)
    return sleeps


def _find_listed(graph: Graph, scopes: Scopes) -> tuple[bool, ...]:
    """Return for each node whether it leads to the aggregator of its enclosing split."""
    listed = [False] * len(graph.ids)
    for i in reversed(graph.order):
        split = scopes.split[i]
        if split is None:
            continue
        targets = {graph.dst[edge] for edge in graph.out_edges[i]}
        if i in scopes.aggregator:
            targets.add(scopes.aggregator[i])
        aggregator = scopes.aggregator.get(split)
        listed[i] = any(
            target == aggregator or (scopes.split[target] == split and listed[target]) for target in targets
        )
    return tuple(listed)


def _is_race(
    definition: Definition,
    rules: Sequence[JoinRule],
    timeouts: Sequence[int | None],
    is_join: Sequence[bool],
    index: int,
) -> bool:
    """Return whether visibility after a join depends on time: it is a race, or it may expire and continue."""
    policy = definition.nodes[index].error
    continues = timeouts[index] is not None and policy is not None and policy.type != "halt"
    return is_join[index] and (rules[index].opens != "all" or continues)


def _find_raced(graph: Graph, scopes: Scopes, races: Sequence[bool]) -> tuple[bool, ...]:
    """Return for each node whether a race is upstream. Races inside of items end at the aggregator."""
    raced = [False] * len(races)
    for i in graph.order:
        sources = [scopes.split_of[i]] if i in scopes.split_of else graph.predecessors(i)
        raced[i] = races[i] or any(raced[source] for source in sources)
    return tuple(raced)


def _find_region(graph: Graph, scopes: Scopes, join: int) -> frozenset[int]:
    """Return the nodes in the scope of the join, or nested in it, whose paths all lead to the join."""
    region: set[int] = {join}
    for i in reversed(graph.order):
        targets = graph.successors(i)
        leads_there = bool(targets) and all(target in region for target in targets)
        if leads_there and i != join and _encloses(scopes, scopes.split[join], i):
            region.add(i)
    return frozenset(region - {join})


def _encloses(scopes: Scopes, split: int | None, node: int) -> bool:
    inner = scopes.split[node]
    while inner is not None and inner != split:
        inner = scopes.split[inner]
    return inner == split


def _bodies(scopes: Scopes) -> dict[int, tuple[int, ...]]:
    bodies: dict[int, list[int]] = {}
    for node in range(len(scopes.split)):
        for split in scopes.enclosing(node):
            bodies.setdefault(split, []).append(node)
    return {split: tuple(nodes) for split, nodes in bodies.items()}


def _timed_races(
    scopes: Scopes, rules: Sequence[JoinRule], timeouts: Sequence[int | None]
) -> dict[int, tuple[int, ...]]:
    races: dict[int, list[int]] = {}
    for i, rule in enumerate(rules):
        if rule.opens == "any" and timeouts[i] is not None:
            split = scopes.split[i]
            races.setdefault(-1 if split is None else split, []).append(i)
    return {split: tuple(nodes) for split, nodes in races.items()}
