"""Compile a validated definition and the catalogue of node types into a plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from rune.core.definition.model import Definition, Node, Retry, content_hash
from rune.core.definition.parser import SourceLocations
from rune.core.expr import Names
from rune.core.node_type import Catalogue, JoinRule, NodeType
from rune.core.plan.graph import Graph, NodeTraits, Scopes, build_graph, find_node_traits, find_scopes
from rune.core.plan.model import NO_PARAMETERS, Edges, NodePlan, Parameters, Plan, Split, compile_parameters

NO_RETRY = Retry()
NO_REGION: frozenset[int] = frozenset()


def names_of(definition: Definition) -> Names:
    """Return the names that references may use: node ids, and node names that are unique."""
    counted = Counter(node.name for node in definition.nodes if node.name)
    titles = {node.name: node.id for node in definition.nodes if counted.get(node.name) == 1}
    return Names(frozenset(node.id for node in definition.nodes), titles)


def compile_definition(
    definition: Definition, catalogue: Catalogue, compiled: Sequence[Parameters] = ()
) -> Plan:
    """Compile a definition. `compiled`: parameters that validation has already compiled."""
    types = [
        catalogue[node.type] if node.pin is None else _pinned_type(catalogue[node.type])
        for node in definition.nodes
    ]
    graph = build_graph([node.id for node in definition.nodes], definition.edges)
    scopes, _ = find_scopes(
        graph, types, definition.edges, SourceLocations.of(definition.nodes, definition.edges)
    )
    traits = find_node_traits(definition, graph, scopes, types)
    names = names_of(definition)
    parameters = compiled or [
        compile_parameters(types[i], node.parameters, names) for i, node in enumerate(definition.nodes)
    ]
    nodes = tuple(
        _node_plan(i, definition, graph, scopes, traits, types[i], parameters[i])
        for i in range(len(definition.nodes))
    )
    root_nodes = [node for node in nodes if node.depth == 0]
    triggers = [i for i in graph.entries if types[i].trigger or definition.nodes[i].trigger]
    after_triggers = dict.fromkeys(node for trigger in triggers for node in graph.successors(trigger))
    return Plan(
        definition=definition,
        hash=content_hash(definition),
        graph=graph,
        scopes=scopes,
        ids=graph.ids,
        index=graph.index,
        nodes=nodes,
        src=graph.src,
        dst=graph.dst,
        gather_position=_gather_positions(nodes),
        entries=graph.entries,
        triggers=frozenset(triggers),
        first=tuple(after_triggers) or graph.entries,
        leaves=tuple(node.index for node in root_nodes if not node.out),
        outputs=tuple(node.index for node in root_nodes if node.type.sets_output),
        races=traits.timed_races.get(-1, ()),
        timeout=_ms(definition.settings.timeout),
        expect_within=_ms(definition.settings.expect_within),
        launches=any(node.type.launches for node in nodes),
        max_parallel=definition.settings.max_parallel,
    )


def _node_plan(
    i: int,
    definition: Definition,
    graph: Graph,
    scopes: Scopes,
    traits: NodeTraits,
    type: NodeType,
    parameters: Parameters,
) -> NodePlan:
    node = definition.nodes[i]
    if node.pin is not None:
        node, parameters = _pinned_node(node), NO_PARAMETERS
    out, in_edges = graph.out_edges[i], graph.in_edges[i]
    edges = definition.edges
    errors = tuple([edge for edge in out if edges[edge].is_error])
    success = tuple([edge for edge in out if not edges[edge].is_error]) if errors else out
    normal = (success, errors)
    rule = traits.rules[i]
    split = scopes.split[i]
    pure = parameters.pure and not type.effectful(node.parameters)
    return NodePlan(
        index=i,
        id=node.id,
        node=node,
        type=type,
        parameters=parameters,
        pure=pure,
        out=out,
        in_edges=in_edges,
        normal=normal,
        by_outlet=_outlets(definition, node, type, out, normal),
        rescue=_rescue(definition, node, out),
        ignored=type.ignore_outlet,
        error_edges=errors,
        success=success,
        is_join=traits.is_join[i],
        opens=rule.opens,
        timeout=traits.timeouts[i],
        timeout_from=_timeout_from(type, rule),
        tolerates=rule.tolerates,
        region=traits.regions.get(i, NO_REGION),
        needs_choice=traits.is_join[i] and rule.opens != "all" and (not pure or rule.cancel_losers),
        policy=node.error.type if node.error else ("halt" if split is None else "collect"),
        retry=_retry(node, type),
        listed=traits.listed[i],
        depth=scopes.depth[i],
        split=-1 if split is None else split,
        fans_out=type.fans_out,
        window=type.window(node.parameters),
        aggregator=scopes.aggregator.get(i, -1),
        body=traits.bodies.get(i, ()),
        races=traits.timed_races.get(i, ()),
        joins_items=type.joins_items,
        split_of=scopes.split_of.get(i, -1),
        passes_payload=type.passes_payload(node.parameters),
        merges=type.merges,
        raced=traits.raced[i],
    )


def _pinned_type(type: NodeType) -> NodeType:
    """Return a type with the same outlets, items and joins, whose nodes neither have effects nor wait."""

    def passes_payload(parameters: Mapping[str, Any]) -> bool:
        # A type that reads the payload and passes it on has it as its output, and the pinned output takes its place.
        return type.passes_payload(parameters) and not type.reads_payload(parameters)

    return msgspec.structs.replace(
        type,
        passes_payload=passes_payload,
        reads_payload=_never,
        effectful=_never,
        retry=_no_retry,
        suspends=False,
        launches=False,
        logs_output=False,
        credentials=False,
    )


def _never(parameters: Mapping[str, Any]) -> bool:
    return False


def _no_retry(parameters: Mapping[str, Any]) -> None:
    return None


def _pinned_node(node: Node) -> Node:
    """Return a node without what only a call needs: any worker gives the output, at once."""
    return msgspec.structs.replace(
        node, queue=None, credentials=None, retry=None, timeout=None, at_most_once=False
    )


def _outlets(
    definition: Definition, node: Node, type: NodeType, out: Edges, normal: Split
) -> Mapping[str | None, Split]:
    routes = type.routes(node.parameters)
    edges = definition.edges
    outlets = type.outlets(node.parameters)
    table: dict[str | None, Split] = {} if outlets or type.fans_out else {None: normal}
    for outlet in outlets:
        alive = tuple(edge for edge in normal[0] if routes.get(edges[edge].id, edges[edge].label) == outlet)
        table[outlet] = (alive, _others(out, alive))
    return table


def _rescue(definition: Definition, node: Node, out: Edges) -> Split:
    target = node.error.error_edge if node.error else None
    if target is None:
        return ((), out)
    alive = tuple(edge for edge in out if definition.edges[edge].id == target)
    return (alive, _others(out, alive))


def _others(out: Edges, alive: Edges) -> Edges:
    excluded = frozenset(alive)
    return tuple(edge for edge in out if edge not in excluded)


def _timeout_from(type: NodeType, rule: JoinRule) -> Literal["first", "latest", "scope"]:
    if rule.opens == "any":
        return "scope"
    return "latest" if type.joins_items and rule.timeout is None else "first"


def _retry(node: Node, type: NodeType) -> Retry:
    if node.retry is not None:
        return node.retry
    default = type.retry(node.parameters)
    return NO_RETRY if default is None else msgspec.convert(dict(default), Retry)


def _gather_positions(nodes: tuple[NodePlan, ...]) -> dict[int, int]:
    return {edge: place for node in nodes if node.joins_items for place, edge in enumerate(node.in_edges)}


def _ms(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1000)
