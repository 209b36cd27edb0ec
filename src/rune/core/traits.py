"""Traits that follow from the graph: each is one pass over the nodes in order."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from rune.core.definition import Definition
from rune.core.graph import Graph
from rune.core.nodetype import JoinRule, NodeType
from rune.core.scopes import Scopes


class Traits(msgspec.Struct, frozen=True):
    """What the position of a node in the graph means for the rules."""

    rules: tuple[JoinRule, ...]
    is_join: tuple[bool, ...]
    timeouts: tuple[int | None, ...]  # ms
    listed: tuple[bool, ...]
    raced: tuple[bool, ...]
    regions: dict[int, frozenset[int]]
    bodies: dict[int, tuple[int, ...]]
    timed_races: dict[int, tuple[int, ...]]  # by the split whose items hold them, -1 for the root


def find_traits(definition: Definition, graph: Graph, scopes: Scopes, types: Sequence[NodeType]) -> Traits:
    """Compute the traits of every node."""
    nodes = zip(definition.nodes, types, strict=True)
    rules = tuple(_rule(node.join, type, node.parameters) for node, type in nodes)
    is_join = tuple(
        (len(graph.in_edges[i]) > 1 or (type.merges and bool(graph.in_edges[i]))) and not type.joins_items
        for i, type in enumerate(types)
    )
    timeouts = _timeouts(definition, graph, scopes, types, rules)
    return Traits(
        rules,
        is_join,
        timeouts,
        _listed(graph, scopes),
        _raced(graph, scopes, [_races(definition, rules, timeouts, is_join, i) for i in range(len(types))]),
        {i: _region(graph, scopes, i) for i, rule in enumerate(rules) if rule.cancel_losers},
        _bodies(scopes),
        _timed_races(scopes, rules, timeouts),
    )


def _rule(join: str | None, type: NodeType, parameters: dict[str, object]) -> JoinRule:
    rule = type.join_rule(parameters)
    return rule if join is None else msgspec.structs.replace(rule, opens=join)


def _timeouts(
    definition: Definition, graph: Graph, scopes: Scopes, types: Sequence[NodeType], rules: Sequence[JoinRule]
) -> tuple[int | None, ...]:
    """In ms. Where something upstream may sleep for days, no default timeout would be right."""
    sleeps = _sleeps_upstream(graph, scopes, types)
    found: list[int | None] = []
    for i, (type, rule) in enumerate(zip(types, rules, strict=True)):
        seconds = rule.timeout
        if not (type.merges or type.joins_items):
            seconds = 0
        elif seconds is None:
            seconds = 0 if rule.opens == "any" or sleeps[i] else definition.settings.join_timeout
        found.append(round(seconds * 1000) if seconds else None)
    return tuple(found)


def _sleeps_upstream(graph: Graph, scopes: Scopes, types: Sequence[NodeType]) -> list[bool]:
    """Whether a node that may sleep lies upstream of each node, in its own scope or one nested in it."""
    sleeps = [False] * len(types)
    for i in graph.order:
        sources = [each for each in graph.predecessors(i) if scopes.depth[each] >= scopes.depth[i]]
        if i in scopes.split_of:
            sources.append(scopes.split_of[i])
        sleeps[i] = any(sleeps[source] or types[source].suspends for source in sources)
    return sleeps


def _listed(graph: Graph, scopes: Scopes) -> tuple[bool, ...]:
    """Whether the aggregator of the split around a node can be reached from it."""
    listed = [False] * len(graph.ids)
    for i in reversed(graph.order):
        split = scopes.split[i]
        if split is None:
            continue
        targets = {graph.dst[edge] for edge in graph.out_edges[i]}
        if i in scopes.aggregator:
            targets.add(scopes.aggregator[i])
        home = scopes.aggregator.get(split)
        listed[i] = any(each == home or (scopes.split[each] == split and listed[each]) for each in targets)
    return tuple(listed)


def _races(
    definition: Definition,
    rules: Sequence[JoinRule],
    timeouts: Sequence[int | None],
    is_join: Sequence[bool],
    index: int,
) -> bool:
    """Whether what is visible behind a join depends on time: it is a race, or it may be given up and go on."""
    policy = definition.nodes[index].error
    goes_on = timeouts[index] is not None and policy is not None and policy.type != "halt"
    return is_join[index] and (rules[index].opens != "all" or goes_on)


def _raced(graph: Graph, scopes: Scopes, races: Sequence[bool]) -> tuple[bool, ...]:
    """Whether a race lies on some way to a node. What happened inside items ends at their aggregator."""
    raced = [False] * len(races)
    for i in graph.order:
        sources = [scopes.split_of[i]] if i in scopes.split_of else graph.predecessors(i)
        raced[i] = races[i] or any(raced[source] for source in sources)
    return tuple(raced)


def _region(graph: Graph, scopes: Scopes, join: int) -> frozenset[int]:
    """Nodes of the join's scope and deeper, all of whose paths end at it."""
    region: set[int] = {join}
    for i in reversed(graph.order):
        targets = graph.successors(i)
        leads_there = bool(targets) and all(each in region for each in targets)
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
    found: dict[int, list[int]] = {}
    for i, rule in enumerate(rules):
        if rule.opens == "any" and timeouts[i] is not None:
            split = scopes.split[i]
            found.setdefault(-1 if split is None else split, []).append(i)
    return {split: tuple(nodes) for split, nodes in found.items()}
